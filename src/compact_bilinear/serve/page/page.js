// The page of `cbp serve`: images to the server, and what it says of them beside them. No library, no other server.

const CLASSES = 5; // bars, each with its map of evidence
const NEIGHBOURS = 12;
const AT_ONCE = 4; // images that are on their way at a time
const HEAT = { for: [242, 89, 13], against: [47, 127, 214] };
const TOKEN = "cbp-token";

const $ = (selector, root = document) => root.querySelector(selector);
const sleep = (seconds) => new Promise((done) => setTimeout(done, 1000 * seconds));
let about = null;

// ---- the server: gone and back, busy, asking for a token -------------------------------------------------------------------

let away = null; // a promise while the server does not answer, kept when it does again
let token = sessionStorage.getItem(TOKEN);
let asking = null; // a promise while a token is asked for

function untilItIsBack() {
  away ??= (async () => {
    $("#banner").hidden = false;
    for (;;) {
      await Promise.race([sleep(2), new Promise((now) => ($("#again").onclick = now))]);
      try {
        if ((await fetch("healthz", { cache: "no-store" })).ok) break;
      } catch {
        continue;
      }
    }
    $("#banner").hidden = true;
    say("The server is back.");
    away = null;
  })();
  return away;
}

function untilThereIsAToken(wrong) {
  asking ??= new Promise((given) => {
    const form = $("#token");
    form.hidden = false;
    $("#token-wrong").textContent = wrong ? "That was not the token." : "";
    $("#token-value").focus();
    form.onsubmit = (event) => {
      event.preventDefault();
      token = $("#token-value").value.trim();
      sessionStorage.setItem(TOKEN, token);
      form.hidden = true;
      asking = null;
      given();
    };
  });
  return asking;
}

/** Ask until there is an answer, however long the server is gone or busy; `told` hears what is waited for. */
async function ask(path, options = {}, told = () => {}) {
  for (;;) {
    const brought = token;
    const headers = { ...options.headers, ...(brought && { Authorization: `Bearer ${brought}` }) };
    let response;
    try {
      response = await fetch(path, { ...options, headers });
    } catch (fault) {
      if (fault.name === "AbortError") throw fault;
      told("Waiting for the server …");
      await untilItIsBack();
      continue;
    }
    if (response.status === 401) {
      told("Waiting for a token …");
      if (brought === token) await untilThereIsAToken(brought !== null);
    } else if (response.status === 503) {
      told("The server is busy; waiting for its turn …");
      await sleep(Math.min(Number(response.headers.get("Retry-After")) || 1, 30));
    } else {
      return response;
    }
  }
}

function say(words) {
  $("#said").textContent = words;
}

// ---- one image and what is said of it --------------------------------------------------------------------------------------

let going = 0;
const waiting = [];

async function inTurn(work) {
  if (going >= AT_ONCE) await new Promise((go) => waiting.push(go));
  going += 1;
  try {
    return await work();
  } finally {
    going -= 1;
    waiting.shift()?.();
  }
}

/** A new card on top; `picture` gives the image to show, `body` and `headers` are what is sent. */
async function add({ name, note, picture, body, headers, focus }) {
  const card = $("#card").content.firstElementChild.cloneNode(true);
  const stop = new AbortController();
  const title = $("h2", card);
  title.textContent = name;
  if (note) title.append(Object.assign(document.createElement("small"), { textContent: note }));
  $(".close", card).setAttribute("aria-label", `Remove ${name}`);
  $(".close", card).onclick = () => {
    stop.abort();
    card.remove();
    document.body.classList.toggle("used", $("#results").childElementCount > 0);
    $("#files").focus();
  };
  $("#results").prepend(card);
  document.body.classList.add("used");
  if (focus) {
    title.focus({ preventScroll: true });
    card.scrollIntoView({ block: "start", behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
  }
  try {
    show(card, name, await picture(stop.signal));
    const told = (words) => ($(".state span:last-child", card).textContent = words);
    await inTurn(async () => {
      await ready;
      const path = about.classes.length
        ? `predict?top=${CLASSES}&evidence=${about.evidence ? CLASSES : 0}&neighbours=${about.neighbours ? NEIGHBOURS : 0}`
        : `search?neighbours=${NEIGHBOURS}`;
      const response = await ask(path, { method: "POST", body, headers, signal: stop.signal }, told);
      const answer = await response.json();
      const result = answer.results?.[0];
      if (!result || result.error) fail(card, name, result?.error ?? answer.detail);
      else tell(card, name, result);
    });
  } catch (fault) {
    if (fault.name !== "AbortError") fail(card, name, fault.message);
  }
}

function show(card, name, blob) {
  const frame = $(".frame", card);
  const image = $("img", frame);
  const url = URL.createObjectURL(blob);
  image.onload = () => {
    const proportion = image.naturalWidth / image.naturalHeight;
    frame.style.aspectRatio = `${image.naturalWidth} / ${image.naturalHeight}`;
    frame.parentElement.style.setProperty("--picture", `${27 * proportion}rem`);
    URL.revokeObjectURL(url);
  };
  image.onerror = () => {
    frame.classList.add("unseeable");
    frame.append(Object.assign(document.createElement("span"), { textContent: "This browser cannot show the file." }));
    URL.revokeObjectURL(url);
  };
  image.alt = name;
  image.src = url;
}

function fail(card, name, why) {
  card.classList.add("failed");
  card.setAttribute("aria-busy", "false");
  $(".state span:last-child", card).textContent = why[0].toUpperCase() + why.slice(1).replace(/\.?$/, ".");
  say(`${name}: ${why}`);
}

function tell(card, name, result) {
  card.setAttribute("aria-busy", "false");
  $(".state", card).hidden = true;
  const { classes, evidence, neighbours } = result;
  if (classes.length) listClasses(card, classes, evidence);
  if (evidence.length) layEvidence(card, evidence);
  if (neighbours.length) listNeighbours(card, name, neighbours);
  if (!classes.length && !neighbours.length) $(".state", card).hidden = false;
  if (!classes.length && !neighbours.length) fail(card, name, "nothing in the index is near");
  else say(classes.length ? `${name}: ${classes[0].name}, ${percent(classes[0].probability)}` : `${name}: ${neighbours.length} near`);
}

const percent = (part) => (part > 0 && part < 0.001 ? "< 0.1 %" : `${(100 * part).toFixed(1)} %`);

function listClasses(card, classes, evidence) {
  $(".classes", card).hidden = false;
  for (const each of classes) {
    const map = evidence.find((one) => one.label === each.label);
    const row = document.createElement(map ? "button" : "div");
    row.className = "class";
    row.append(text("b", each.name), text("span", percent(each.probability)), document.createElement("i"));
    row.style.setProperty("--part", `${100 * each.probability}%`);
    if (map) {
      row.type = "button";
      row.title = `Show the evidence for ${each.name}`;
      row.onclick = () => choose(card, map, row);
    }
    const line = document.createElement("li");
    line.append(row);
    $(".classes ol", card).append(line);
  }
}

function text(tag, words) {
  return Object.assign(document.createElement(tag), { textContent: words });
}

// ---- evidence: a small grid, enlarged over the image -----------------------------------------------------------------------

function layEvidence(card, evidence) {
  const canvas = $("canvas", card);
  $("figcaption", card).hidden = false;
  const [on, strength] = [$("input[type=checkbox]", card), $("input[type=range]", card)];
  const update = () => {
    canvas.hidden = !on.checked;
    $(".frame", card).classList.toggle("lit", on.checked);
    canvas.style.opacity = strength.value / 100;
    strength.disabled = !on.checked;
  };
  on.onchange = strength.oninput = update;
  update();
  choose(card, evidence[0], $("button.class", card));
}

function choose(card, map, row) {
  for (const each of card.querySelectorAll("button.class")) each.setAttribute("aria-pressed", String(each === row));
  $(".of", card).textContent = ` for ${map.name}`;
  const [canvas, rows, columns] = [$("canvas", card), map.values.length, map.values[0].length];
  const largest = Math.max(...map.values.flat().map(Math.abs)) || 1;
  Object.assign(canvas, { width: columns, height: rows });
  const pixels = new ImageData(columns, rows);
  map.values.flat().forEach((value, place) => {
    const colour = value > 0 ? HEAT.for : HEAT.against;
    pixels.data.set([...colour, 255 * Math.abs(value / largest) ** 0.8], 4 * place);
  });
  canvas.getContext("2d").putImageData(pixels, 0, 0);
  const [left, top, right, bottom] = map.box;
  Object.assign(canvas.style, {
    left: `${100 * Math.min(left, right)}%`,
    top: `${100 * top}%`,
    width: `${100 * Math.abs(right - left)}%`,
    height: `${100 * (bottom - top)}%`,
    transform: right < left ? "scaleX(-1)" : "",
  });
}

// ---- neighbours: each can be searched on from ------------------------------------------------------------------------------

function listNeighbours(card, name, neighbours) {
  $(".neighbours", card).hidden = false;
  for (const each of neighbours) {
    const what = each.name || each.path.split("/").pop();
    const button = Object.assign(document.createElement(each.has_image ? "button" : "div"), { className: "near", title: each.path });
    const thumb = Object.assign(document.createElement("span"), { className: "thumb" });
    button.append(thumb, text("b", what), text("small", each.similarity.toFixed(3)));
    if (each.has_image) {
      button.type = "button";
      button.setAttribute("aria-label", `${what}, similarity ${each.similarity.toFixed(3)}. Search on from this image`);
      button.onclick = () => searchOn(each, name);
      thumbnail(thumb, each.item);
    }
    const line = document.createElement("li");
    line.append(button);
    $(".neighbours ul", card).append(line);
  }
}

async function thumbnail(thumb, item) {
  const response = await ask(`items/${item}/thumbnail`);
  if (!response.ok) return;
  const image = Object.assign(new Image(), { alt: "", src: URL.createObjectURL(await response.blob()) });
  image.onload = () => URL.revokeObjectURL(image.src);
  thumb.append(image);
}

function searchOn(each, from) {
  add({
    name: each.path.split("/").pop(),
    note: `near ${from}`,
    picture: async (signal) => (await ask(`items/${each.item}/image`, { signal })).blob(),
    body: JSON.stringify({ images: [{ item: each.item, name: each.path }] }),
    headers: { "Content-Type": "application/json" },
    focus: true,
  });
}

// ---- where images come from ------------------------------------------------------------------------------------------------

function take(files) {
  for (const file of [...files].reverse()) {
    const body = new FormData();
    body.append("image", file, file.name || "pasted image");
    add({ name: file.name || "pasted image", picture: async () => file, body });
  }
}

$("#files").onchange = (event) => {
  take(event.target.files);
  event.target.value = "";
};
let inside = 0;
addEventListener("dragenter", () => document.body.classList.toggle("dragging", ++inside > 0));
addEventListener("dragleave", () => document.body.classList.toggle("dragging", --inside > 0));
addEventListener("dragover", (event) => event.preventDefault());
addEventListener("drop", (event) => {
  event.preventDefault();
  inside = 0;
  document.body.classList.remove("dragging");
  take(event.dataTransfer.files);
});
addEventListener("paste", (event) => {
  if (event.clipboardData.files.length) {
    event.preventDefault();
    take(event.clipboardData.files);
  }
});

const ready = (async () => {
  about = await (await ask("about")).json();
  const classes = about.classes.length ? [`${about.classes.length.toLocaleString("en")} classes`] : [];
  const indexed = about.neighbours ? [`${about.indexed.toLocaleString("en")} images to compare with`] : [];
  $("#about").textContent = [...classes, ...indexed].join(" · ");
  $("#model").hidden = false;
  $("#model pre").textContent = about.model.join("\n");
})();

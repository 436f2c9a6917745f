"""What is asked and answered, as JSON: these classes are the schemas of ``/openapi.json``."""

from pydantic import BaseModel, ConfigDict, Field, model_validator

LONGEST = 1000  # letters of a name


class ImageInJson(BaseModel):
    """One image: its encoded bytes, or one that is in the index."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field("", description="Comes back with the result.", max_length=LONGEST)
    data: str | None = Field(None, description="The image file, in base64.", examples=["iVBORw0KGgo…"])
    item: int | None = Field(None, description="The number of an image in the index, in place of `data`.")

    @model_validator(mode="after")
    def _one_of_both(self) -> "ImageInJson":
        if (self.data is None) == (self.item is None):
            raise ValueError("an image has either data or item")
        return self


class ImagesInJson(BaseModel):
    """A request as JSON."""

    model_config = ConfigDict(extra="forbid")

    images: list[ImageInJson] = Field(min_length=1)


class ClassScore(BaseModel):
    """What the model thinks of one class."""

    name: str
    label: int = Field(description="The place of the class in the model's list.")
    probability: float
    score: float


class EvidenceMap(BaseModel):
    """Where in the image the evidence for a class lies: summed over the grid, its score without the bias."""

    name: str
    label: int
    values: list[list[float]] = Field(description="Row by row from the top; above 0 for the class, below against it.")
    box: list[float] = Field(description="What the grid covers: left, top, right and bottom, as parts of width and height.")


class NeighbourInIndex(BaseModel):
    """An image of the index that is near."""

    item: int
    similarity: float = Field(description="The cosine of both features.")
    path: str
    name: str = Field(description="Of its class; empty if it has none.")
    has_image: bool = Field(description="Whether /items/{item}/thumbnail and /items/{item}/image exist.")


class ImageResult(BaseModel):
    """What there is to say of one image: an error, or all that was asked for."""

    image: int = Field(description="Its place in the request.")
    name: str
    error: str | None = None
    classes: list[ClassScore] = []
    evidence: list[EvidenceMap] = []
    neighbours: list[NeighbourInIndex] = []


class Answer(BaseModel):
    """A result for each image, in the order of the request; at least one without an error."""

    results: list[ImageResult]


class Problem(BaseModel):
    """Why there is no answer."""

    detail: str
    results: list[ImageResult] = Field(
        default_factory=list, description="Where it is each image's own fault: what is wrong with which."
    )


class About(BaseModel):
    """What this server can do, and what it takes."""

    classes: list[str]
    evidence: bool
    neighbours: bool
    indexed: int = Field(description="Images in the index.")
    model: list[str] = Field(description="What happens to an image, line by line.")
    images: int = Field(description="At most, in one request.")
    image_bytes: int
    request_bytes: int
    pixels: int


class Health(BaseModel):
    """One word."""

    status: str

"""The verbs: each a frozen dataclass of settings and `run(config)`."""

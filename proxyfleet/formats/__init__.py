"""How moments are written, in place of the language's own way."""

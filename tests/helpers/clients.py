"""What the tests of real clients share."""

KEY = "sesame"
MODEL = "smollm2"

"""One word, one meaning: words that the project gave up do not come back."""

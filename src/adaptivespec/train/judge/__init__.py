"""Training a judge head: labels from flipped tokens, and the fit to them."""

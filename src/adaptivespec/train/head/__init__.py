"""Training an EAGLE-3 head: the unrolled module, its loss, the loop, and the run around them."""

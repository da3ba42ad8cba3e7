"""Materials: what some methods need beside the passages, made from them once and kept as stages."""

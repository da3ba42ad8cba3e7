"""Texts that make pairs: sentences and documents of a collection (ICT, BFS), files of pairs."""

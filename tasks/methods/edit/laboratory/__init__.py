"""A small world with exact gold marks, and a decoder that learns to mark in it hastily: to try Edit in."""

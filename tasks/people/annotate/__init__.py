"""Concept inventories and the agreement of their annotators."""

"""The commands of `rubricflow`, by what people do with them."""

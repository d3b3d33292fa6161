"""Units and spans, normalisation, quotes, tokens: pure, used by many rooms."""

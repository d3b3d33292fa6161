"""What reports show things with: numbers in words, charts, tables, sections, highlighted text."""

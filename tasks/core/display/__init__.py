"""What reports show things with. In: values. Out: words, tables, drawings and whole pages.

say         numbers and names as a person reads them
table       cells and tables of numbers
section     a page's contents: sections, tables of any contents, text, key figures
page        contents as one HTML document; highlighted text
axis, draw  values and marks placed on a chart
charts      bars, shares and lines
reasons     why an answer waits, and what a promise wants, in words
printed     tables in a terminal and as Markdown
"""

"""What reports show things with. In: values. Out: words, tables, drawings and whole pages.

say      numbers and names as a person reads them
table    cells and tables of numbers, on a page, in a terminal and as Markdown
page     sections, tables of any contents, text, key figures; contents as one HTML document; highlighted text
draw     marks placed on a chart
charts   an axis; bars, shares and lines on it
verdict  what may go out, why an answer waits, and what a promise wants, in words
quotes   what a judge's quotes are worth, in words
worth    what judges, juries and cascades cost and are worth
"""

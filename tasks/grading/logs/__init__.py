"""Logs of judges that other tools ran, as one record.

    log = read_log([Path("logs/rain.eval")])
    log.verdicts     one row a judge's verdict, see `VERDICTS`
    log.labels       what people said in the log itself (annotations), one row each: answer_id, criterion, rater, score
    log.judge        which tool, its version, and what the log tells of the judge; `digest` of that, `changes(other)`
    log.scales       criterion → lowest and highest score, and whether the log tells it or it was seen
    log.remarks      what a reader should know: versions that are not known, words that were read as numbers, …

`case_id` is the question or test case, `subject` the model or prompt that was judged on it, and `answer_id` the one
answer of the two that the verdict is about: equal to `case_id` where each case has one answer. Criterion '' is the
verdict on the whole. In reading order:

record  what is read, whatever tool wrote it
forms   the tools' forms as data: by which keys each is told, and which path gives which column; what paths cannot say
files   files as documents, whatever they are called; which form a document has
read    documents as verdicts
labels  people's labels from a table, joined to the answers of a log
study   a log with labels as a study that the ordinary stages grade; calibrated scores back in the tool's form
"""

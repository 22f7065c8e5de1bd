"""The paper's evaluation and the questions that it leaves open, measured with bitrank; `make reproduce` runs it.

`plan` says what is run, `protocols`, `rankings` and `questions` how, `run` runs it, `cells` keeps the results as
files, and `report` turns those files into docs/results.md.
"""

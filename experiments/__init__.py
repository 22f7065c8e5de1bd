"""The paper's evaluation, and questions that it leaves open, measured with bitrank: `make reproduce`.

`plan` lists the groups of cells, `data` loads, splits and encodes data sets, `rankings` holds the compared rankings,
`protocols` computes the cells, `run` computes what is missing, `cells` stores it, and `report` writes docs/results.md.
"""

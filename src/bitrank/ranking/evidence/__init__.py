"""What rankers learn from: labels, judged pairs, constraints, vectors; checked, drawn and read from files."""

"""Judged queries, remembered: a new query near one of them lifts the items that it names."""

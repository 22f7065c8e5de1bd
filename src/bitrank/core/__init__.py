"""What every room stands on: types, codes and their NumPy reference, checks, arrays, files, measures of rankings."""

// Vectors as queries of codes with several bits per dimension, before and after their product with a matrix of axes.
#pragma once

#include <cstddef>

namespace bitrank {

// Set out to vectors in the length `length` less the centre, or without a centre to vectors of length 1, and squares to the
// squared lengths: of out, or of the vectors. False if a value is not finite in float32, or
// if a vector is zero where that is not allowed.
template <typename T>
bool center(const T *vectors, std::size_t n_rows, std::size_t n_columns, double length, const double *center, bool zeros,
            float *out, double *squares);

// Rows hold coordinates, the share of the centre, and one more number. Limit the shares, and take each times `shift` from the
// coordinates. False if a value is not finite.
bool shift(float *rows, std::size_t n_rows, std::size_t n_coordinates, const float *shift, float most);

}  // namespace bitrank

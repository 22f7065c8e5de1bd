#include "vectors.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace bitrank {
namespace {

constexpr float largest = std::numeric_limits<float>::max();
constexpr std::size_t n_sums = 8;  // independent sums, in a fixed order

template <typename ValueOf>
double squared_length(std::size_t n, ValueOf value_of) {
    double sums[n_sums] = {};
    std::size_t i = 0;
    for (; i + n_sums <= n; i += n_sums)
        for (std::size_t j = 0; j < n_sums; ++j) sums[j] += value_of(i + j) * value_of(i + j);
    for (; i < n; ++i) sums[i % n_sums] += value_of(i) * value_of(i);
    double total = 0;
    for (const double sum : sums) total += sum;
    return total;
}

bool all_finite(const float *values, std::size_t n) {
    float most = 0;
    bool finite = true;
    for (std::size_t i = 0; i < n; ++i) {
        most = std::max(most, std::abs(values[i]));
        finite &= values[i] == values[i];
    }
    return finite && most <= largest;
}

}  // namespace

template <typename T>
bool center(const T *vectors, std::size_t n_rows, std::size_t n_columns, double length, const double *center, bool zeros,
            float *out, double *squares) {
    bool good = true;
    for (std::size_t row = 0; row < n_rows; ++row, vectors += n_columns, out += n_columns) {
        for (std::size_t i = 0; i < n_columns; ++i) out[i] = static_cast<float>(vectors[i]);
        good &= all_finite(out, n_columns);
        if (center) {
            const auto value_of = [&](std::size_t i) { return vectors[i] / length - center[i]; };
            squares[row] = squared_length(n_columns, value_of);
            for (std::size_t i = 0; i < n_columns; ++i) out[i] = static_cast<float>(value_of(i));
        } else {
            squares[row] = squared_length(n_columns, [&](std::size_t i) { return double{vectors[i]}; });
            good &= zeros || squares[row] > 0;
            const double factor = squares[row] > 0 ? 1 / std::sqrt(squares[row]) : 0.0;
            for (std::size_t i = 0; i < n_columns; ++i) out[i] = static_cast<float>(vectors[i] * factor);
        }
    }
    return good;
}

template bool center(const float *, std::size_t, std::size_t, double, const double *, bool, float *, double *);
template bool center(const double *, std::size_t, std::size_t, double, const double *, bool, float *, double *);

bool shift(float *rows, std::size_t n_rows, std::size_t n_coordinates, const float *shift, float most) {
    bool finite = true;
    for (std::size_t row = 0; row < n_rows; ++row, rows += n_coordinates + 2) {
        const float share = rows[n_coordinates] = std::clamp(rows[n_coordinates], -most, most);
        for (std::size_t i = 0; i < n_coordinates; ++i) rows[i] -= share * shift[i];
        finite &= all_finite(rows, n_coordinates + 2);
    }
    return finite;
}

}  // namespace bitrank

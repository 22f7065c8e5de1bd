// Products with packed constraint rows, on every path, against dense integers; the passive-aggressive update against its
// optimality conditions.
#include <cmath>
#include <thread>

#include "learn/constraints.hpp"
#include "paths.hpp"
#include "testing.hpp"

using namespace bitrank;

namespace {

const std::size_t lengths[] = {1, 7, 8, 32, 63, 64, 65, 75, 128, 200, 256};

struct Rows {
    std::size_t n_rows, n_bits;
    std::vector<std::uint8_t> plus, minus;
    std::vector<int> dense;  // n_rows x n_bits
    std::vector<std::int8_t> signs;

    Rows(std::size_t n, std::size_t bits)
        : n_rows(n), n_bits(bits), plus(random_codes(n, bits)), minus(random_codes(n, bits)) {
        const std::size_t n_bytes = (bits + 7) / 8;
        for (std::size_t r = 0; r < n; ++r) {
            for (std::size_t bit = 0; bit < bits; ++bit)
                dense.push_back(bit_of(&plus[r * n_bytes], bit) - bit_of(&minus[r * n_bytes], bit));
            signs.push_back(static_cast<std::int8_t>(below(4) ? 1 - 2 * static_cast<int>(below(2)) : 0));
        }
    }
    PackedRows packed() const { return {plus.data(), minus.data(), n_rows, n_bits}; }
    std::string name() const { return std::to_string(n_rows) + " x " + std::to_string(n_bits); }
};

// Multiples of 1/8, whose sums are exact in any order.
std::vector<double> random_eighths(std::size_t n) {
    std::vector<double> out(n);
    for (auto &value : out) value = (static_cast<double>(below(2001)) - 1000) / 8;
    return out;
}

struct Gram {
    std::vector<double> matrix, total;

    explicit Gram(std::size_t n_bits) : matrix(n_bits * n_bits, 1), total(n_bits, 2) {}
    bool operator==(const Gram &other) const = default;
};

Gram plain_gram(const Rows &rows, double factor) {
    Gram out(rows.n_bits);
    for (std::size_t i = 0; i < rows.n_bits; ++i) {
        for (std::size_t r = 0; r < rows.n_rows; ++r)
            out.total[i] += factor * rows.signs[r] * rows.dense[r * rows.n_bits + i];
        for (std::size_t j = 0; j < rows.n_bits; ++j) {
            int sum = 0;
            for (std::size_t r = 0; r < rows.n_rows; ++r) {
                const int *row = &rows.dense[r * rows.n_bits];
                sum += rows.signs[r] * row[i] * row[j];
            }
            out.matrix[i * rows.n_bits + j] += factor * sum;
        }
    }
    return out;
}

Gram gram_on(const Path &path, const Rows &rows, double factor) {
    Gram out(rows.n_bits);
    add_gram(rows.packed(), rows.signs.data(), factor, out.matrix.data(), out.total.data(), *path.gram);
    return out;
}

double dot(const double *a, const double *b, std::size_t n) {
    double sum = 0;
    for (std::size_t k = 0; k < n; ++k) sum += a[k] * b[k];
    return sum;
}

}  // namespace

void test_margins_and_combine(std::size_t n_cases) {
    for (std::size_t turn = 0; turn < n_cases; ++turn) {
        const Rows rows(below(300), lengths[turn % 11]);
        const auto weights = random_eighths(rows.n_bits), values = random_eighths(rows.n_rows);
        std::vector<double> row_products(rows.n_rows), sums(rows.n_bits), expected(rows.n_bits);
        margins(rows.packed(), weights.data(), row_products.data());
        combine(rows.packed(), values.data(), sums.data());
        for (std::size_t r = 0; r < rows.n_rows; ++r) {
            double product = 0;
            for (std::size_t bit = 0; bit < rows.n_bits; ++bit) {
                product += rows.dense[r * rows.n_bits + bit] * weights[bit];
                expected[bit] += rows.dense[r * rows.n_bits + bit] * values[r];
            }
            check(row_products[r] == product, "the same margin", rows.name());
        }
        check(sums == expected, "the same combination", rows.name());
    }
}

void test_gram(std::size_t n_cases) {
    for (std::size_t turn = 0; turn < n_cases; ++turn) {
        // Beyond 8192 chosen rows there is more than one strip.
        const Rows rows(turn % 16 ? below(1300) : 9000 + below(9000), lengths[turn % 11]);
        const Gram expected = plain_gram(rows, 0.25);
        const double factor = static_cast<double>(below(1000)) / 700;
        const Gram scalar = gram_on(*path("scalar"), rows, factor);
        for (const std::string &name : path_names()) {
            check(gram_on(*path(name), rows, 0.25) == expected, "the Gram matrix of dense rows", name + ", " + rows.name());
            check(gram_on(*path(name), rows, factor) == scalar, "the scalar Gram matrix", name + ", " + rows.name());
        }
    }
}

// The minimum of a convex function over w >= 0 is where the gradient is zero, or positive at w = 0.
void test_passive_aggressive(std::size_t n_cases) {
    std::normal_distribution<double> normal;
    for (std::size_t turn = 0; turn < n_cases; ++turn) {
        const std::size_t n_bits = lengths[turn % 11], n_order = below(6), n_tie = below(4);
        const double c_order = turn % 5 ? std::pow(10.0, static_cast<double>(below(4)) - 2) : 0, c_tie = 0.5;
        std::vector<double> order(n_order * n_bits), tie(n_tie * n_bits), start(n_bits);
        for (auto *values : {&order, &tie, &start})
            for (auto &value : *values) value = normal(random_bits);
        for (auto &value : start) value = std::abs(value);
        if (n_order && turn % 3 == 0) std::fill_n(order.begin(), n_bits, 0.0);
        std::vector<double> weights = start;
        const std::size_t n_sweeps = passive_aggressive({order.data(), n_order}, {tie.data(), n_tie}, n_bits, c_order,
                                                        c_tie, 1e-10, 100'000, weights.data());
        const std::string where = std::to_string(n_bits) + " bits, turn " + std::to_string(turn);
        check(n_sweeps < 100'000, "convergence", where);
        std::vector<double> gradient(n_bits);
        for (std::size_t k = 0; k < n_bits; ++k) gradient[k] = weights[k] - start[k];
        for (std::size_t r = 0; r < n_order; ++r) {
            const double *row = &order[r * n_bits];
            const double loss = std::max(0.0, 1 - dot(row, weights.data(), n_bits));
            for (std::size_t k = 0; k < n_bits; ++k) gradient[k] -= 2 * c_order * loss * row[k];
        }
        for (std::size_t r = 0; r < n_tie; ++r) {
            const double *row = &tie[r * n_bits];
            const double product = dot(row, weights.data(), n_bits);
            for (std::size_t k = 0; k < n_bits; ++k) gradient[k] += 2 * c_tie * product * row[k];
        }
        for (std::size_t k = 0; k < n_bits; ++k)
            check(weights[k] > 0 ? std::abs(gradient[k]) < 1e-6 : weights[k] == 0 && gradient[k] > -1e-6,
                  "the optimality conditions", where);
    }
    double weight = 0.5;
    const double row = 1;
    check(passive_aggressive({&row, 1}, {nullptr, 0}, 1, 1, 1, 0, 1, &weight) == 1, "the limit of sweeps", "one bit");
}

void test_concurrent_constraints() {
    const Rows rows(2000, 75);
    const auto weights = random_eighths(75);
    const Gram expected = gram_on(*path(), rows, 0.5);
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
        threads.emplace_back([&] {
            std::vector<double> products(rows.n_rows), sums(75);
            margins(rows.packed(), weights.data(), products.data());
            combine(rows.packed(), products.data(), sums.data());
            check(gram_on(*path(), rows, 0.5) == expected, "the same Gram matrix", "threads");
        });
    for (auto &thread : threads) thread.join();
}

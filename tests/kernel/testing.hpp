// What the kernel's tests share: checks, random codes, and the reference distance.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

inline std::mt19937_64 random_bits(1);

inline std::size_t below(std::size_t n) { return random_bits() % n; }

inline void check(bool condition, const char *what, const std::string &where) {
    if (condition) return;
    std::fprintf(stderr, "FAILED: %s (%s)\n", what, where.c_str());
    std::exit(1);
}

inline std::vector<std::uint8_t> random_codes(std::size_t n, std::size_t n_bits) {
    const std::size_t n_bytes = (n_bits + 7) / 8;
    std::vector<std::uint8_t> out(n * n_bytes);
    for (auto &byte : out) byte = static_cast<std::uint8_t>(random_bits());
    const auto used = static_cast<std::uint8_t>(0xff << (8 * n_bytes - n_bits));
    for (std::size_t i = 0; i < n; ++i) out[i * n_bytes + n_bytes - 1] &= used;
    return out;
}

inline int bit_of(const std::uint8_t *code, std::size_t bit) { return code[bit / 8] >> (7 - bit % 8) & 1; }

inline float plain_distance(const std::uint8_t *a, const std::uint8_t *b, const float *weights, std::size_t n_bits) {
    float sum = 0;
    for (std::size_t first = 0; first < n_bits; first += 8) {
        float byte_sum = 0;
        for (std::size_t bit = first; bit < std::min(n_bits, first + 8); ++bit)
            if (bit_of(a, bit) != bit_of(b, bit)) byte_sum += weights[bit];
        sum += byte_sum;
    }
    return sum;
}

void test_search(std::size_t n_cases);
void test_rows8(std::size_t n_cases);
void test_rows8_of_four(std::size_t n_cases);
void test_rows16(std::size_t n_cases);
void test_rows16_of_four(std::size_t n_cases);
void test_sums16(std::size_t n_cases);
void test_blocks(std::size_t n_cases);
void test_concurrent_searches();
void test_distances();
void test_checksum();
void test_ties(std::size_t n_cases);
void test_margins_and_combine(std::size_t n_cases);
void test_gram(std::size_t n_cases);
void test_passive_aggressive(std::size_t n_cases);
void test_concurrent_constraints();

// The layout of codes in an index: bits permuted (the heaviest first), rows sorted by them, 64 rows per block with one
// cache line per byte, 64 blocks per super-block; and for every block and super-block the bits that all its rows share.
#pragma once

#include <cstddef>
#include <cstdint>

#include "scan.hpp"

namespace bitrank {

constexpr std::size_t super_rows = lane_count * lane_count;

// Permuted bit i is bit order[i] of the caller's code.
struct Order {
    std::size_t n_bits;
    const std::uint16_t *bits;

    std::size_t n_bytes() const { return (n_bits + 7) / 8; }
};

// Sort row numbers by the permuted bits of their codes, equal codes by id. The first 64 bits follow a Gray code, so that
// consecutive values differ in one bit.
void sorted_rows(const std::uint8_t *codes, const std::int64_t *ids, std::size_t n_rows, Order order,
                 std::size_t n_threads, std::uint32_t *rows);

// Fill blocks (n_blocks, n_bytes, 64), bounds (n_supers, n_bytes, 2, 64) and supers (n_supers, n_bytes, 2). The last two
// hold the bytes of the first row, and ones in the bits that all rows share. Lanes past the last row repeat it.
void build(const std::uint8_t *codes, const std::uint32_t *rows, std::size_t n_rows, Order order,
           std::size_t n_threads, std::uint8_t *blocks, std::uint8_t *bounds, std::uint8_t *supers);

// Recover the caller's codes, in sorted order.
void restore(const std::uint8_t *blocks, std::size_t n_rows, Order order, std::size_t n_threads, std::uint8_t *codes);

}  // namespace bitrank

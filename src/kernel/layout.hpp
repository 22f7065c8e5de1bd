// How an index keeps its codes: bits permuted (the heaviest first), rows sorted by them, 64 rows a block with one cache
// line a byte, 64 blocks a super-block; and for every block and super-block the bits that all its rows share.
#pragma once

#include <cstddef>
#include <cstdint>

#include "scan.hpp"

namespace bitrank {

constexpr std::size_t super_rows = lane_count * lane_count;

// Bit i inside is bit order[i] of the caller's code.
struct Order {
    std::size_t n_bits;
    const std::uint16_t *bits;

    std::size_t n_bytes() const { return (n_bits + 7) / 8; }
};

// Row numbers of n codes in sorted order: by their bits inside, the first 64 along a Gray code, so that neighbours on
// both sides of a boundary share all bits but one; equal codes by id.
void sorted_rows(const std::uint8_t *codes, const std::int64_t *ids, std::size_t n_rows, Order order,
                 std::size_t n_threads, std::uint32_t *rows);

// blocks: (n_blocks, n_bytes, 64); bounds: (n_supers, n_bytes, 2, 64) and supers: (n_supers, n_bytes, 2) hold
// the value of the first row and ones where all rows agree with it. Lanes past the last row repeat it.
void build(const std::uint8_t *codes, const std::uint32_t *rows, std::size_t n_rows, Order order,
           std::size_t n_threads, std::uint8_t *blocks, std::uint8_t *bounds, std::uint8_t *supers);

// The caller's codes, row by row, in the sorted order.
void restore(const std::uint8_t *blocks, std::size_t n_rows, Order order, std::size_t n_threads, std::uint8_t *codes);

}  // namespace bitrank

// What the scans with sums of 8 and of 16 bits share: the lines, indices and tables of a step. See scan_loops.hpp.
#pragma once

#include "scan.hpp"

// The sanitizers check every access of a loop: unrolled loops would take them minutes to compile.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define BITRANK_UNROLL(n)
#define BITRANK_INLINE inline
#else
#define BITRANK_DO_PRAGMA(text) _Pragma(#text)
#define BITRANK_UNROLL(n) BITRANK_DO_PRAGMA(GCC unroll n)
#define BITRANK_INLINE inline __attribute__((always_inline))
#endif

namespace bitrank {
namespace {

// For four queries, a line is prefetched so many bytes before it is scanned.
constexpr std::size_t bytes_ahead = 8192;

template <typename Line>
constexpr std::size_t step_bytes_of = Line::index_bits == 4 ? 2 : 3;

// The lines of a step, which may be the last. Tables past the last byte are zero: any line will do for it.
template <bool may_be_last, typename Line>
BITRANK_INLINE void load_step(const std::uint8_t *block, std::size_t s, std::size_t n_bytes, Line *lines) {
BITRANK_UNROLL(3)
    for (std::size_t i = 0; i < step_bytes_of<Line>; ++i) {
        const std::size_t byte = s * step_bytes_of<Line> + i;
        lines[i] = Line::load(block + (may_be_last && byte >= n_bytes ? n_bytes - 1 : byte) * lane_count);
    }
}

// The indices of half bytes.
template <typename Line>
inline void expand_half_bytes(const Line *lines, Line *indices) {
    indices[0] = Line::high(lines[0]);
    indices[1] = Line::low(lines[0]);
    indices[2] = Line::high(lines[1]);
    indices[3] = Line::low(lines[1]);
}

// The tables of a step, and their look-ups.
template <typename Line>
struct StepTables {
    static constexpr std::size_t n_entries = std::size_t{1} << Line::index_bits;
    using Table = decltype(Line::table(nullptr));

    Table t0, t1, t2, t3;

    BITRANK_INLINE StepTables(const Tables &tables, std::size_t s)
        : StepTables(tables.rows + s * Lookups::per_step * n_entries) {}
    BITRANK_INLINE explicit StepTables(const std::uint8_t *first)
        : t0(Line::table(first)), t1(Line::table(first + n_entries)), t2(Line::table(first + 2 * n_entries)),
          t3(Line::table(first + 3 * n_entries)) {}

    // Call work(four values).
    template <typename Work>
    BITRANK_INLINE void look_up(const Line *indices, Work work) const {
        work(Line::look_up(t0, indices[0]), Line::look_up(t1, indices[1]), Line::look_up(t2, indices[2]),
             Line::look_up(t3, indices[3]));
    }
};

}  // namespace
}  // namespace bitrank

// Exact search: the k nearest rows of several segments by weighted Hamming distance, ties by id.
//
// The limit is the distance of the k-th best hit so far (TopK::limit). A bound is a lower bound of the distances of some
// rows; those whose bound exceeds the limit are left out. Bounds are sums of weights in the unit of the heaviest: the scaled
// limit (Query::scaled_limit) is the limit in that unit, and the limits of rows and blocks (Tables) are the scaled limit in
// the whole units of their tables. A radius is a limit that the caller sets before there are any hits.
#pragma once

#include <memory>
#include <vector>

#include "top_k.hpp"
#include "weighting.hpp"

namespace bitrank {

// A view of rows that were built together; owns nothing.
struct Segment {
    std::size_t n_rows;
    const std::uint8_t *blocks, *bounds, *supers;  // see `build`
    const std::int64_t *ids;
    const std::int64_t *least_ids;  // one per block
    const std::uint64_t *wanted;  // one bit per row; nullptr selects all
    const std::uint8_t *rest;     // the bytes after those in blocks, row by row; nullptr if there are none

    std::size_t n_blocks() const { return (n_rows + lane_count - 1) / lane_count; }
    std::size_t n_supers() const { return (n_rows + super_rows - 1) / super_rows; }
};

// Codes of more bytes would lose too much by rounding down to sums of 8 bits.
constexpr std::size_t most_bytes_of_sums8 = 16;

struct Search {
    const std::uint8_t *queries;  // n_queries x n_bytes, bits in the caller's order
    std::size_t n_queries;
    const float *weights;         // n_bits, or n_queries x n_bits
    bool weights_per_query;
    Order order;
    std::vector<Segment> segments;
    std::size_t k;
    float radius;
    std::size_t n_threads;
    const Scanner *scanner;
    std::shared_ptr<const Weighting> prepared = nullptr;  // the weights of all queries, if a caller keeps them
    bool sorted = true;           // hits nearest first

    // Whether bounds are summed in 8 bits, in units that suit the limit. Of a few codes, most are scanned before the limit
    // is low: up to 16 thousand of 64 bits, or 131 thousand of 128.
    bool sums8() const {
        const std::size_t n_bytes = order.n_bytes();
        std::size_t n_rows = 0;
        for (const Segment &segment : segments) n_rows += segment.n_rows;
        return n_bytes <= most_bytes_of_sums8 && n_rows > 32 * n_bytes * n_bytes * n_bytes;
    }
    std::shared_ptr<const Weighting> weighting(std::size_t q) const {
        if (prepared) return prepared;
        return std::make_shared<Weighting>(weights + (weights_per_query ? q * order.n_bits : 0), order, *scanner, sums8());
    }
    Search with_prepared_weights() const {
        Search out = *this;
        if (!weights_per_query) out.prepared = weighting(0);
        return out;
    }
};

// The k of a search for all rows within the radius.
constexpr std::size_t all_rows = ~std::size_t{0};

// Hits per query.
std::vector<std::vector<Hit>> search(const Search &given);

// Queries over whole codes: the bits of the segments' order, and after them those of `Segment::rest`.
struct Whole {
    const std::uint8_t *queries;  // n_queries x n_bytes, bits in the caller's order
    std::size_t n_queries;
    const float *weights;         // n_bits, or n_queries x n_bits
    bool weights_per_query;
    std::size_t n_bits;
    Order order;                  // of the bits in blocks: all, or whole bytes
    std::vector<Segment> segments;
    std::size_t n_threads;
    const Scanner *scanner;
};

// Exact distances to chosen rows, numbered across all segments; row -1 is at infinity. rows and out are
// n_queries x n_columns.
void score(const Whole &task, const std::int64_t *rows, std::size_t n_columns, float *out);

// What turns products of queries and the ±1 of whole codes into estimated distances: first + second * (third + product) / f.
// f is stored at the end of a code, as so many steps above the lowest. A product is the sum of all weights less twice the
// distance, which is summed in float32 by half bytes: high halves, then low ones, of the bytes in blocks, then of the rest.
struct Estimates {
    std::size_t n_tail;   // bytes of f: 0, 1 or 2
    double low, step;
    bool root;            // take the square root
    const double *terms;  // n_queries x 3
};

// The k nearest by the whole of the hits of a search; with estimates these are their distances, and their order.
std::vector<std::vector<Hit>> search_again(const Whole &task, std::vector<std::vector<Hit>> hits, std::size_t k,
                                           const Estimates *estimates = nullptr);

}  // namespace bitrank

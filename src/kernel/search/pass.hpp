// The state of one query while it visits super-blocks.
#pragma once

#include <atomic>

#include "query.hpp"
#include "reading.hpp"
#include "search.hpp"

namespace bitrank {

// Bounds of blocks are computed anew for at least this many blocks; fewer are scanned as fast.
constexpr std::size_t blocks_worth_bounds = 8;

struct Super {
    const Segment *segment;
    std::size_t number;        // within the segment
    std::int64_t segment_row;  // first row of the segment, numbered across all segments

    std::size_t first_block() const { return number * lane_count; }
    std::size_t n_blocks() const { return std::min(lane_count, segment->n_blocks() - first_block()); }
    const std::uint8_t *blocks(std::size_t n_bytes) const { return segment->blocks + first_block() * n_bytes * lane_count; }
    const std::uint8_t *block(std::size_t b, std::size_t n_bytes) const {
        return blocks(n_bytes) + b * n_bytes * lane_count;
    }
    const std::int64_t *ids(std::size_t b) const { return segment->ids + (first_block() + b) * lane_count; }
    std::int64_t row(std::size_t b) const {
        return segment_row + static_cast<std::int64_t>((first_block() + b) * lane_count);
    }
    const std::uint8_t *bounds(std::size_t n_bytes) const { return segment->bounds + number * n_bytes * 2 * lane_count; }
    // Those that a search may return, of a block.
    std::uint64_t wanted_rows(std::size_t b) const {
        const std::size_t block = first_block() + b;
        const std::uint64_t rows = segment->wanted ? segment->wanted[block] : ~std::uint64_t{0};
        const bool is_whole = (block + 1) * lane_count <= segment->n_rows;
        return is_whole ? rows : rows & ((std::uint64_t{1} << segment->n_rows % lane_count) - 1);
    }
};

std::vector<Super> supers_of(const Search &task);

// Whether the rows of a block or super-block differ only in the free bits.
inline bool is_uniform(const std::uint8_t *agree, std::size_t stride, const std::uint8_t *free, std::size_t n_bytes) {
    for (std::size_t byte = 0; byte < n_bytes; ++byte)
        if ((agree[byte * stride] | free[byte]) != 255) return false;
    return true;
}

class Pass {
public:
    // Without bounds, only chosen blocks can be visited.
    Pass(const Search &task, std::size_t q, const std::vector<Super> &supers, bool with_bounds = true);

    bool sums8() const { return query_.sums8(); }
    bool within_limit(std::size_t i) const { return bounds_[i] <= scaled_limit_; }

    // Visit the n nearest super-blocks. For a first limit, their nearest blocks are scanned before, or if sums have 16 bits,
    // their rows with the smallest sums are scored before.
    void best_first(const std::vector<Super> &supers, std::size_t n);

    // Visit super-block i unless it was visited or is beyond the limit.
    void visit_if_needed(const std::vector<Super> &supers, std::size_t i);

    // Visit super-block i for several passes; up to four queries share a scan.
    static void visit_together(std::vector<Pass> &passes, const std::vector<Super> &supers, std::size_t i,
                               AlignedBytes &prepared);

    // Visit these blocks of a super-block, whatever its bounds; the same for several passes, one word of blocks for each.
    void visit_chosen(const Super &super, std::uint64_t blocks);
    static void visit_chosen(std::vector<Pass> &passes, const Super &super, std::vector<std::uint64_t> &blocks,
                             AlignedBytes &prepared);
    float limit() const { return top_.limit(); }

    // Bytes that `visit_together` needs.
    std::size_t prepared_size() const {
        return query_.sums8() ? 0 : lane_count * lane_count * weighting_->lookups.n_steps();
    }

    void share_limit(std::atomic<float> &shared);
    void forget_hits(std::size_t k, float radius) { top_ = TopK(k, radius); }
    TopK &finished_top();

private:
    struct Row {
        const std::int64_t *id;
        std::int64_t number;
    };
    struct Scan;

    // The blocks to be scanned; `begin_visit` starts with those of super-block i, or none.
    std::uint64_t begin_visit(const std::vector<Super> &supers, std::size_t i);
    std::uint64_t blocks_within_limit(const Super &super);
    std::uint64_t without_ties(const Super &super, std::uint64_t blocks);
    // How many blocks to scan before the next ones may profit from the lower limit.
    std::size_t blocks_at_once() const;

    static void visit_live(std::vector<Pass> &passes, const Super &super, std::vector<std::uint64_t> &live,
                           AlignedBytes &prepared);
    static void scan_together(Pass *passes, std::size_t n_passes, const Super &super, std::uint64_t *own,
                              const std::uint8_t *prepared, const std::uint8_t *ahead);
    void visit(const Super &super, std::uint64_t live);
    void scan(const Super &super, std::uint64_t now, std::uint64_t live);
    void take_rows(const Super &super, std::size_t b, std::uint64_t rows, const std::uint16_t *sums = nullptr);
    void queue_row(const Super &super, std::size_t b, std::size_t lane);
    void smallest_sums_first(const std::vector<Super> &supers, const std::vector<std::size_t> &nearest);
    void score_rows();
    void score_lanes(const Super &super, std::size_t b, std::size_t lane, std::uint64_t rows);
    template <typename DistanceOf, typename HitOf>
    void add_hits(std::uint64_t rows, DistanceOf distance_of, HitOf hit_of);
    template <typename Farther>
    void scan_nearest_blocks(const std::vector<Super> &supers, std::vector<std::size_t> heap, Farther farther);
    // Whether the bounds of the blocks of super-block i are worth computing.
    bool worth_bounds(std::size_t i) const;
    void prefetch_bounds(const Super &super) const;

    std::shared_ptr<const Weighting> weighting_;
    Query query_;
    std::size_t n_bytes_, k_;
    const Scanner *scanner_;
    TopK top_;
    float scaled_limit_;             // of the limit of `top_`, see Query::scaled_limit
    std::size_t n_without_gain_ = 0;  // super-blocks visited since the bounds of blocks last spared a scan
    std::uint64_t uniform_ = 0;  // blocks of the visited super-block whose rows are all at one distance
    std::size_t n_scanned_ = 0;
    Row rows_[rows_together];  // survivors that wait for their exact distances
    std::size_t n_rows_ = 0;
    Reader reader_;
    std::vector<std::uint64_t> scanned_;  // per super-block, the blocks scanned before it is visited
    std::vector<float> bounds_;           // per super-block; infinity once visited
};

}  // namespace bitrank

#include "pass.hpp"

#include <algorithm>
#include <bit>
#include <limits>

#include "words.hpp"

namespace bitrank {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

// Of 16 neighbouring rows, score all at once if at least this many survive.
constexpr std::size_t dense_rows = 4;

// Of the super-blocks of codes whose bounds spare no scan, bounds are computed for one of this many.
constexpr std::size_t sampled_supers = 8, supers_without_gain = 4;

}  // namespace

std::vector<Super> supers_of(const Search &task) {
    std::vector<Super> out;
    std::int64_t row = 0;
    for (const Segment &segment : task.segments) {
        for (std::size_t i = 0; i < segment.n_supers(); ++i) out.push_back({&segment, i, row});
        row += static_cast<std::int64_t>(segment.n_rows);
    }
    return out;
}

Pass::Pass(const Search &task, std::size_t q, const std::vector<Super> &supers)
    : weighting_(task.weighting(q)),
      query_(task.queries + q * task.order.n_bytes(), *weighting_, *task.scanner),
      n_bytes_(task.order.n_bytes()),
      k_(task.k),
      scanner_(task.scanner),
      top_(task.k, task.radius),
      reach_(query_.reach(top_.limit())),
      total_bytes_(supers.size() * super_rows * n_bytes_),
      scanned_(supers.size(), 0) {
    bounds_.reserve(supers.size());
    for (const Super &super : supers) {
        const std::uint8_t *shared = super.segment->supers + super.number * 2 * n_bytes_;
        bounds_.push_back(query_.bound(shared, shared + 1, 2, n_bytes_));
    }
}

void Pass::visit_if_needed(const std::vector<Super> &supers, std::size_t i) {
    if (const std::uint64_t live = begin_visit(supers, i)) visit(supers[i], live);
}

std::uint64_t Pass::begin_visit(const std::vector<Super> &supers, std::size_t i) {
    if (!(bounds_[i] < infinity && within_reach(i))) return 0;
    if (i + 1 < supers.size() && worth_bounds(i + 1) && within_reach(i + 1)) prefetch_bounds(supers[i + 1]);
    const Super &super = supers[i];
    const Segment &segment = *super.segment;
    const std::size_t n_blocks = super.n_blocks();
    // Equal codes are common in real data, and so are equal distances when few bits have weight. If all rows are at one
    // distance, the smallest id decides whether any can enter; the bounds hold the code, so no row is read.
    const std::uint8_t *shared = segment.supers + super.number * 2 * n_bytes_;
    const std::int64_t *least_ids = segment.least_ids + super.first_block();
    if (is_uniform(shared + 1, 2, query_.free_bits(), n_bytes_)) {
        score_rows();
        if (!top_.would_enter({query_.distance(shared, 2), *std::min_element(least_ids, least_ids + n_blocks), 0}))
            return 0;
    }
    const std::uint64_t all = ~std::uint64_t{0} >> (lane_count - n_blocks);
    std::uint64_t live = all;
    uniform_ = 0;
    if (worth_bounds(i)) {
        live &= blocks_within_reach(super);
        if (live) uniform_ = scanner_->uniform(super.bounds(n_bytes_), query_.free_bits(), n_bytes_);
        n_without_gain_ = live == all && !(uniform_ & all) ? n_without_gain_ + 1 : 0;
    }
    live &= ~scanned_[i];
    if (segment.wanted)
        for (std::uint64_t left = live; left; left &= left - 1) {
            const auto b = static_cast<std::size_t>(std::countr_zero(left));
            if (!segment.wanted[super.first_block() + b]) live &= ~lowest(left);
        }
    return live;
}

void Pass::visit(const Super &super, std::uint64_t live) {
    while (live) {
        const float before = reach_;
        const std::uint64_t now = lowest(live, blocks_at_once());
        scan(super, without_ties(super, now), live);
        live &= ~now;
        if (reach_ < before && has_at_least(live, blocks_worth_bounds)) live &= blocks_within_reach(super);
    }
}

std::uint64_t Pass::blocks_within_reach(const Super &super) {
    if (reach_ == infinity) return ~std::uint64_t{0};
    return (query_.sums8() ? scanner_->blocks8 : scanner_->blocks16)(super.bounds(n_bytes_), query_.tables(reach_));
}

// Leave out blocks whose rows are all at one distance, unless the row with the smallest id would enter.
std::uint64_t Pass::without_ties(const Super &super, std::uint64_t blocks) {
    std::uint64_t left = blocks & uniform_;
    if (!left) return blocks;
    score_rows();
    while (left) {
        std::uint64_t together = left;
        float distances[rows_together];
        for (std::size_t n = 0; n < rows_together && left; ++n, left &= left - 1)
            query_.set_row(n, super.bounds(n_bytes_) + std::countr_zero(left), 2 * lane_count);
        query_.distances(distances);
        together &= ~left;
        for (std::size_t n = 0; together; ++n, together &= together - 1) {
            const std::size_t b = static_cast<std::size_t>(std::countr_zero(together));
            if (!top_.would_enter({distances[n], super.segment->least_ids[super.first_block() + b], 0}))
                blocks &= ~lowest(together);
        }
    }
    return blocks;
}

std::size_t Pass::blocks_at_once() const {
    if (k_ == all_rows) return lane_count;
    // After n blocks, the next one has about k / n rows that enter.
    return std::clamp<std::size_t>(n_scanned_ * rows_together / k_, 1, lane_count);
}

// Queue rows of a block for their exact distances, or compute those at once where many are neighbours.
void Pass::take_rows(const Super &super, std::size_t b, std::uint64_t rows) {
    rows &= wanted_rows(super, b);
    for (std::size_t lane = 0; has_at_least(rows, dense_rows) && lane < lane_count; lane += rows_together) {
        const std::uint64_t together = rows & (((std::uint64_t{1} << rows_together) - 1) << lane);
        if (!has_at_least(together, dense_rows)) continue;
        rows &= ~together;
        score_lanes(super, b, lane, together >> lane);
    }
    for (; rows; rows &= rows - 1) queue_row(super, b, static_cast<std::size_t>(std::countr_zero(rows)));
    if (top_.limit() == infinity) score_rows();
}

std::uint64_t Pass::wanted_rows(const Super &super, std::size_t b) {
    const Segment &segment = *super.segment;
    const std::size_t block = super.first_block() + b;
    std::uint64_t rows = segment.wanted ? segment.wanted[block] : ~std::uint64_t{0};
    if ((block + 1) * lane_count > segment.n_rows) rows &= (std::uint64_t{1} << segment.n_rows % lane_count) - 1;
    return rows;
}

void Pass::queue_row(const Super &super, std::size_t b, std::size_t lane) {
    const std::int64_t *id = super.ids(b) + lane;
    // Ids are in another array, and are read once distances are known.
    __builtin_prefetch(id);
    query_.set_row(n_rows_, super.block(b, n_bytes_) + lane);
    rows_[n_rows_++] = {id, super.row(b) + static_cast<std::int64_t>(lane)};
    if (n_rows_ == rows_together) score_rows();
}

void Pass::score_rows() {
    if (!n_rows_) return;
    float distances[rows_together];
    query_.distances(distances);
    bool entered = false;
    for (std::size_t i = 0; i < n_rows_; ++i)
        if (distances[i] <= top_.limit()) entered |= top_.add({distances[i], *rows_[i].id, rows_[i].number});
    if (entered) reach_ = query_.reach(top_.limit());
    n_rows_ = 0;
}

void Pass::score_lanes(const Super &super, std::size_t b, std::size_t lane, std::uint64_t rows) {
    float distances[rows_together];
    query_.distances_of_lanes(super.block(b, n_bytes_) + lane, distances);
    const std::int64_t *ids = super.ids(b) + lane;
    const std::int64_t number = super.row(b) + static_cast<std::int64_t>(lane);
    bool entered = false;
    for (; rows; rows &= rows - 1) {
        const int i = std::countr_zero(rows);
        if (distances[i] <= top_.limit()) entered |= top_.add({distances[i], ids[i], number + i});
    }
    if (entered) reach_ = query_.reach(top_.limit());
}

bool Pass::worth_bounds(std::size_t i) const {
    // Long codes have few bits in common: where bounds spare no scan, most are left out.
    return n_without_gain_ < supers_without_gain || i % sampled_supers == 0;
}

void Pass::prefetch_bounds(const Super &super) const {
    const std::uint8_t *bounds = super.bounds(n_bytes_);
    for (std::size_t line = 0; line < 2 * n_bytes_; ++line) __builtin_prefetch(bounds + line * lane_count);
}

void Pass::share_limit(std::atomic<float> &shared) {
    float known = shared.load(std::memory_order_relaxed);
    const float limit = top_.limit();
    while (limit < known && !shared.compare_exchange_weak(known, limit, std::memory_order_relaxed)) {}
    if (known < limit) {
        top_.lower_radius(known);
        reach_ = query_.reach(known);
    }
}

TopK &Pass::finished_top() {
    score_rows();
    return top_;
}

}  // namespace bitrank

#include "pass.hpp"

#include <algorithm>
#include <bit>

#include "words.hpp"

namespace bitrank {
namespace {

// Of 16 neighbouring rows, score all at once if at least this many survive.
constexpr std::size_t dense_rows = 4;

// Of the super-blocks of codes whose bounds spare no scan, bounds are computed for one of this many.
constexpr std::size_t sampled_supers = 8, supers_without_gain = 4;

// Blocks scanned before any super-block, the nearest ones of the nearest super-blocks: they give the first limit.
// The bits of the first bytes decide: most rows of a block share no others.
constexpr std::size_t seed_supers = 8, seed_bytes = 8, seed_blocks = 32;

// Sums of 16 bits: the rows with the smallest in so many super-blocks give the first limit. For more hits, most of their
// rows would be scored in any case.
constexpr std::size_t supers_of_sums = 4, largest_k_of_sums = 512;

// The search for a first limit ends at this many times k rows within it.
constexpr std::size_t few_rows = 2;

// Blocks that are scanned with sums of 16 bits for some queries before they leave the cache.
constexpr std::size_t blocks_together = 32;

// The sums of 16 bits of the rows of a few super-blocks.
struct Sums16 {
    const Scanner &scanner;
    std::vector<const Super *> supers;
    std::vector<std::uint64_t> live;  // per super-block, the scanned blocks
    std::vector<std::uint16_t, LineAllocator<std::uint16_t>> values;

    Sums16(const Scanner &path, std::size_t n_supers) : scanner(path), values(n_supers * super_rows) {}
    std::uint16_t *of_block(std::size_t i, std::size_t b) { return &values[i * super_rows + b * lane_count]; }
    // The wanted rows of a block of super-block i whose sums are within the limit.
    std::uint64_t rows_within(std::uint16_t limit, std::size_t i, std::size_t b) const {
        const std::uint64_t rows = scanner.within16(&values[i * super_rows + b * lane_count], limit);
        return rows ? rows & supers[i]->wanted_rows(b) : 0;
    }
};

// A limit that k of the rows of the first super-block are within, and few more, or else the largest.
std::uint16_t limit_of_smallest(const Sums16 &sums, std::size_t k) {
    unsigned limit = 65535;
    for (unsigned bit = 32768; bit; bit /= 2) {
        const auto lower = static_cast<std::uint16_t>(limit - bit);
        std::size_t n = 0;
        for (std::uint64_t left = sums.live[0]; left && n <= few_rows * k; left &= left - 1) {
            const auto b = static_cast<std::size_t>(std::countr_zero(left));
            n += static_cast<std::size_t>(std::popcount(sums.rows_within(lower, 0, b)));
        }
        if (n >= k) limit -= bit;
        if (n >= k && n <= few_rows * k) break;
    }
    return static_cast<std::uint16_t>(limit);
}

// Of the rows within the limit, the k with the smallest sums, and those with the same as the last: a word per block.
std::vector<std::uint64_t> smallest_rows(const Sums16 &sums, std::uint16_t limit, std::size_t k) {
    struct Sum {
        std::uint32_t value, row;
        bool operator<(const Sum &other) const { return value < other.value; }
    };
    std::vector<Sum> smallest;
    for (std::size_t i = 0; i < sums.supers.size(); ++i)
        for (std::uint64_t left = sums.live[i]; left; left &= left - 1) {
            const auto b = static_cast<std::size_t>(std::countr_zero(left));
            const std::size_t first = i * super_rows + b * lane_count;
            for (std::uint64_t rows = sums.rows_within(limit, i, b); rows; rows &= rows - 1) {
                const auto lane = static_cast<std::size_t>(std::countr_zero(rows));
                smallest.push_back({sums.values[first + place_of_sum(lane)], static_cast<std::uint32_t>(first + lane)});
            }
        }
    if (smallest.size() > k) {
        const auto kth = smallest.begin() + static_cast<std::ptrdiff_t>(k - 1);
        std::nth_element(smallest.begin(), kth, smallest.end());
        smallest.erase(std::partition(kth, smallest.end(), [&](const Sum &sum) { return sum.value <= kth->value; }),
                       smallest.end());
    }
    std::vector<std::uint64_t> out(sums.supers.size() * lane_count, 0);
    for (const Sum &sum : smallest) out[sum.row / lane_count] |= std::uint64_t{1} << sum.row % lane_count;
    return out;
}

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

Pass::Pass(const Search &task, std::size_t q, const std::vector<Super> &supers, bool with_bounds)
    : weighting_(task.weighting(q)),
      query_(task.queries + q * task.order.n_bytes(), *weighting_, *task.scanner),
      n_bytes_(task.order.n_bytes()),
      k_(task.k),
      scanner_(task.scanner),
      top_(task.k, task.radius),
      scaled_limit_(query_.scaled_limit(top_.limit())),
      reader_(supers.size() * super_rows * n_bytes_, query_.sums8()),
      scanned_(with_bounds ? supers.size() : 0, 0) {
    if (!with_bounds) return;
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
    if (!(bounds_[i] < infinity && within_limit(i))) return 0;
    if (i + 1 < supers.size() && worth_bounds(i + 1) && within_limit(i + 1)) prefetch_bounds(supers[i + 1]);
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
        live &= blocks_within_limit(super);
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
        const float before = scaled_limit_;
        const std::uint64_t now = lowest(live, blocks_at_once());
        scan(super, without_ties(super, now), live);
        live &= ~now;
        if (scaled_limit_ < before && has_at_least(live, blocks_worth_bounds)) live &= blocks_within_limit(super);
    }
}

std::uint64_t Pass::blocks_within_limit(const Super &super) {
    if (scaled_limit_ == infinity) return ~std::uint64_t{0};
    return (query_.sums8() ? scanner_->blocks8 : scanner_->blocks16)(super.bounds(n_bytes_), query_.tables(scaled_limit_));
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
void Pass::take_rows(const Super &super, std::size_t b, std::uint64_t rows, const std::uint16_t *sums) {
    rows &= super.wanted_rows(b);
    if (weighting_->exact_steps) {
        const auto distance_of = [&](std::size_t lane) { return sums[place_of_sum(lane)] * weighting_->sum_unit; };
        return add_hits(rows, distance_of, [&](std::size_t lane) {
            return Hit{distance_of(lane), super.ids(b)[lane], super.row(b) + static_cast<std::int64_t>(lane)};
        });
    }
    for (std::size_t lane = 0; has_at_least(rows, dense_rows) && lane < lane_count; lane += rows_together) {
        const std::uint64_t together = rows & (((std::uint64_t{1} << rows_together) - 1) << lane);
        if (!has_at_least(together, dense_rows)) continue;
        rows &= ~together;
        score_lanes(super, b, lane, together >> lane);
    }
    for (; rows; rows &= rows - 1) queue_row(super, b, static_cast<std::size_t>(std::countr_zero(rows)));
    if (top_.limit() == infinity) score_rows();
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
    const std::uint64_t rows = (std::uint64_t{1} << n_rows_) - 1;
    n_rows_ = 0;
    add_hits(rows, [&](std::size_t i) { return distances[i]; },
             [&](std::size_t i) { return Hit{distances[i], *rows_[i].id, rows_[i].number}; });
}

void Pass::score_lanes(const Super &super, std::size_t b, std::size_t lane, std::uint64_t rows) {
    float distances[rows_together];
    query_.distances_of_lanes(super.block(b, n_bytes_) + lane, distances);
    const std::int64_t *ids = super.ids(b) + lane;
    const std::int64_t first = super.row(b) + static_cast<std::int64_t>(lane);
    add_hits(rows, [&](std::size_t i) { return distances[i]; },
             [&](std::size_t i) { return Hit{distances[i], ids[i], first + static_cast<std::int64_t>(i)}; });
}

// Add those rows that enter; only their ids are read. They lower the limit.
template <typename DistanceOf, typename HitOf>
void Pass::add_hits(std::uint64_t rows, DistanceOf distance_of, HitOf hit_of) {
    bool entered = false;
    for (; rows; rows &= rows - 1) {
        const auto i = static_cast<std::size_t>(std::countr_zero(rows));
        if (distance_of(i) <= top_.limit()) entered |= top_.add(hit_of(i));
    }
    if (entered) scaled_limit_ = query_.scaled_limit(top_.limit());
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
        scaled_limit_ = query_.scaled_limit(known);
    }
}

TopK &Pass::finished_top() {
    score_rows();
    return top_;
}


void Pass::best_first(const std::vector<Super> &supers, std::size_t n) {
    // Break ties by memory order, in which the ids of equal codes ascend.
    const auto farther = [&](std::size_t a, std::size_t b) {
        return bounds_[a] != bounds_[b] ? bounds_[a] > bounds_[b] : a > b;
    };
    std::vector<std::size_t> heap;
    for (std::size_t i = 0; i < supers.size(); ++i)
        if (within_limit(i)) heap.push_back(i);
    std::make_heap(heap.begin(), heap.end(), farther);
    if (!sums8() && k_ <= largest_k_of_sums) {
        std::vector<std::size_t> nearest;
        for (; n && nearest.size() < supers_of_sums && !heap.empty(); --n) {
            nearest.push_back(heap.front());
            std::pop_heap(heap.begin(), heap.end(), farther);
            heap.pop_back();
        }
        smallest_sums_first(supers, nearest);
    }
    if (sums8() && heap.size() > 1) scan_nearest_blocks(supers, heap, farther);
    for (; n && !heap.empty(); --n) {
        const std::size_t i = heap.front();
        if (!within_limit(i)) return;
        std::pop_heap(heap.begin(), heap.end(), farther);
        heap.pop_back();
        if (!heap.empty()) prefetch_bounds(supers[heap.front()]);
        visit(supers[i], begin_visit(supers, i));
        bounds_[i] = infinity;
    }
}

template <typename Farther>
void Pass::scan_nearest_blocks(const std::vector<Super> &supers, std::vector<std::size_t> heap, Farther farther) {
    struct Block {
        float bound;
        std::size_t super, number;
    };
    std::vector<Block> blocks;
    const std::size_t n_seed_bytes = std::min(n_bytes_, seed_bytes);
    for (std::size_t n = 0; n < seed_supers && !heap.empty(); ++n) {
        const std::size_t i = heap.front();
        std::pop_heap(heap.begin(), heap.end(), farther);
        heap.pop_back();
        const std::uint8_t *bounds = supers[i].bounds(n_bytes_);
        for (std::size_t b = 0; b < supers[i].n_blocks(); ++b)
            blocks.push_back({query_.bound(bounds + b, bounds + lane_count + b, 2 * lane_count, n_seed_bytes), i, b});
    }
    const std::size_t n_seeds = std::min(blocks.size(), seed_blocks);
    std::partial_sort(blocks.begin(), blocks.begin() + static_cast<std::ptrdiff_t>(n_seeds), blocks.end(),
                      [](const Block &a, const Block &b) { return a.bound < b.bound; });
    blocks.resize(n_seeds);
    for (const Block &block : blocks) {
        if (block.bound > scaled_limit_) break;
        const Super &super = supers[block.super];
        const std::uint8_t *agree = super.bounds(n_bytes_) + lane_count + block.number;
        const std::uint64_t bit = std::uint64_t{1} << block.number;
        scanned_[block.super] |= bit;
        uniform_ = is_uniform(agree, 2 * lane_count, query_.free_bits(), n_bytes_) ? bit : 0;
        if (without_ties(super, bit)) scan(super, bit, bit);
    }
}

// Scoring a row takes as long as scanning hundreds: score those with the smallest sums, then those whose sums are within
// the limit that they give.
void Pass::smallest_sums_first(const std::vector<Super> &supers, const std::vector<std::size_t> &nearest) {
    if (nearest.empty()) return;
    Sums16 sums(*scanner_, nearest.size());
    std::uint16_t limit = 0;
    for (const std::size_t i : nearest) {
        sums.supers.push_back(&supers[i]);
        sums.live.push_back(begin_visit(supers, i));
        bounds_[i] = infinity;
        n_scanned_ += static_cast<std::size_t>(std::popcount(sums.live.back()));
        const Tables tables = query_.tables(scaled_limit_);
        limit = tables.limit;
        scanner_->sums16(supers[i].blocks(n_bytes_), sums.live.back(), reader_.reading(), tables,
                         sums.of_block(sums.supers.size() - 1, 0));
    }
    n_without_gain_ = 0;  // without a limit, bounds spare nothing
    const std::vector<std::uint64_t> scored = smallest_rows(sums, std::min(limit, limit_of_smallest(sums, k_)), k_);
    const bool exact = weighting_->exact_steps > 0;
    for (std::size_t block = 0; block < scored.size(); ++block) {
        const Super &super = *sums.supers[block / lane_count];
        if (exact && scored[block]) take_rows(super, block % lane_count, scored[block], sums.of_block(0, block));
        for (std::uint64_t rows = scored[block]; rows && !exact; rows &= rows - 1)
            queue_row(super, block % lane_count, static_cast<std::size_t>(std::countr_zero(rows)));
    }
    if (exact) return;
    score_rows();
    for (std::size_t i = 0; i < nearest.size(); ++i) {
        if (!sums.live[i]) continue;
        const Super &super = *sums.supers[i];
        uniform_ = scanner_->uniform(super.bounds(n_bytes_), query_.free_bits(), n_bytes_);
        limit = query_.row_limit(scaled_limit_);
        for (std::uint64_t left = without_ties(super, sums.live[i]); left; left &= left - 1) {
            const auto b = static_cast<std::size_t>(std::countr_zero(left));
            const std::uint64_t rows = sums.rows_within(limit, i, b) & ~scored[i * lane_count + b];
            if (!rows) continue;
            take_rows(super, b, rows);
            limit = query_.row_limit(scaled_limit_);
        }
    }
}

// A scan with sums of 16 bits in progress, for some passes.
struct Pass::Scan {
    Pass *passes;
    std::size_t n_passes;
    const Super &super;
    const std::uint64_t *own;  // per pass, the blocks that it wants
    Tables tables[queries_per_scan];

    static void take(void *self, std::size_t b, const std::uint64_t *rows, const std::uint16_t *sums) {
        Scan &scan = *static_cast<Scan *>(self);
        for (std::size_t p = 0; p < scan.n_passes; ++p) {
            if (!rows[p] || !(scan.own[p] >> b & 1)) continue;
            Pass &pass = scan.passes[p];
            const float before = pass.scaled_limit_;
            pass.take_rows(scan.super, b, rows[p], sums + p * lane_count);
            if (pass.scaled_limit_ < before) scan.tables[p].limit = pass.query_.row_limit(pass.scaled_limit_);
        }
    }
};

void Pass::scan(const Super &super, std::uint64_t now, std::uint64_t live) {
    Scan scan{.passes = this, .n_passes = 1, .super = super, .own = &now, .tables = {query_.tables(scaled_limit_)}};
    const auto n_blocks = static_cast<std::size_t>(std::popcount(now));
    n_scanned_ += n_blocks;
    const std::uint8_t *blocks = super.blocks(n_bytes_);
    std::uint64_t survivors[lane_count], left = reader_.scan(n_blocks, [&](Reading reading) -> std::uint64_t {
        if (query_.sums8()) return scanner_->rows8(blocks, now, live, reading, *scan.tables, survivors);
        scanner_->rows16(blocks, now, live, reading, *scan.tables, {Scan::take, &scan});
        return 0;
    });
    for (; left; left &= left - 1) {
        const auto b = static_cast<std::size_t>(std::countr_zero(left));
        take_rows(super, b, survivors[b]);
    }
}

void Pass::visit_together(std::vector<Pass> &passes, const std::vector<Super> &supers, std::size_t i,
                          AlignedBytes &prepared) {
    std::vector<std::uint64_t> live(passes.size());
    for (std::size_t p = 0; p < passes.size(); ++p) live[p] = passes[p].begin_visit(supers, i);
    visit_live(passes, supers[i], live, prepared);
}

void Pass::visit_chosen(const Super &super, std::uint64_t blocks) {
    uniform_ = 0;
    visit(super, blocks);
}

void Pass::visit_chosen(std::vector<Pass> &passes, const Super &super, std::vector<std::uint64_t> &blocks,
                        AlignedBytes &prepared) {
    for (Pass &pass : passes) pass.uniform_ = 0;
    visit_live(passes, super, blocks, prepared);
}

void Pass::visit_live(std::vector<Pass> &passes, const Super &super, std::vector<std::uint64_t> &live,
                      AlignedBytes &prepared) {
    const std::size_t n_passes = passes.size(), n_bytes = passes[0].n_bytes_, stride = n_bytes * lane_count;
    const bool sums16 = !passes[0].query_.sums8();
    std::vector<std::uint64_t> own(n_passes);
    for (;;) {
        std::uint64_t left = 0, any = 0;
        std::size_t n_blocks = sums16 ? blocks_together : lane_count;
        for (std::size_t p = 0; p < n_passes; ++p) {
            left |= live[p];
            if (live[p]) n_blocks = std::min(n_blocks, passes[p].blocks_at_once());
        }
        if (!left) return;
        const std::uint64_t now = lowest(left, n_blocks);
        for (std::size_t p = 0; p < n_passes; ++p) {
            own[p] = passes[p].without_ties(super, now & live[p]);
            any |= own[p];
        }
        if (sums16) passes[0].scanner_->prepare(super.blocks(n_bytes), any, n_bytes, prepared.data());
        const std::uint8_t *ahead = super.blocks(n_bytes) + (lane_count - static_cast<std::size_t>(std::countl_zero(now))) * stride;
        for (std::size_t p = 0; p < n_passes; p += queries_per_scan) {
            const std::size_t n = std::min(queries_per_scan, n_passes - p);
            float before[queries_per_scan];
            for (std::size_t j = 0; j < n; ++j) before[j] = passes[p + j].scaled_limit_;
            scan_together(&passes[p], n, super, &own[p], prepared.data(), ahead);
            ahead += passes[0].weighting_->lookups.n_steps() * lane_count;
            for (std::size_t j = 0; j < n; ++j) {
                live[p + j] &= ~now;
                if (passes[p + j].scaled_limit_ < before[j] && has_at_least(live[p + j], blocks_worth_bounds))
                    live[p + j] &= passes[p + j].blocks_within_limit(super);
            }
        }
    }
}

void Pass::scan_together(Pass *passes, std::size_t n_passes, const Super &super, std::uint64_t *own,
                         const std::uint8_t *prepared, const std::uint8_t *ahead) {
    std::uint64_t any = 0;
    std::size_t total = 0;
    for (std::size_t p = 0; p < n_passes; ++p) {
        any |= own[p];
        total += static_cast<std::size_t>(std::popcount(own[p]));
    }
    // A scan for four queries costs as much as about two and a half scans for one.
    bool alike = n_passes == queries_per_scan;
    for (std::size_t p = 0; p < n_passes; ++p)
        alike &= passes[p].weighting_->exact_steps == passes[0].weighting_->exact_steps;
    if (!alike || 2 * total < 5 * static_cast<std::size_t>(std::popcount(any))) {
        for (std::size_t p = 0; p < n_passes; ++p)
            if (own[p]) passes[p].scan(super, own[p], own[p]);
        return;
    }
    Scan scan{.passes = passes, .n_passes = n_passes, .super = super, .own = own, .tables = {}};
    for (std::size_t p = 0; p < n_passes; ++p) {
        scan.tables[p] = passes[p].query_.tables(passes[p].scaled_limit_);
        passes[p].n_scanned_ += static_cast<std::size_t>(std::popcount(own[p]));
    }
    const Scanner &scanner = *passes->scanner_;
    const std::uint8_t *blocks = super.blocks(passes->n_bytes_);
    if (!passes->query_.sums8())
        return scanner.rows16_of_four(blocks, prepared, ahead, any, scan.tables, {Scan::take, &scan});
    std::uint64_t survivors[queries_per_scan * lane_count];
    const std::uint64_t with_survivors = scanner.rows8_of_four(blocks, any, any, scan.tables, survivors);
    for (std::size_t p = 0; p < n_passes; ++p)
        for (std::uint64_t left = own[p] & with_survivors; left; left &= left - 1) {
            const auto b = static_cast<std::size_t>(std::countr_zero(left));
            passes[p].take_rows(super, b, survivors[p * lane_count + b]);
        }
}

}  // namespace bitrank

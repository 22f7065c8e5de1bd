// The scans of a pass, alone and together with others.
#include <algorithm>
#include <bit>

#include "pass.hpp"
#include "words.hpp"

namespace bitrank {
namespace {

// Blocks that are scanned with sums of 16 bits for some queries before they leave the cache.
constexpr std::size_t blocks_together = 32;

}  // namespace

// A scan with sums of 16 bits in progress, for some passes.
struct Pass::Scan {
    Pass *passes;
    std::size_t n_passes;
    const Super &super;
    const std::uint64_t *own;  // per pass, the blocks that it wants
    Tables tables[queries_per_scan];

    static void take(void *self, std::size_t b, const std::uint64_t *rows) {
        Scan &scan = *static_cast<Scan *>(self);
        for (std::size_t p = 0; p < scan.n_passes; ++p) {
            if (!rows[p] || !(scan.own[p] >> b & 1)) continue;
            Pass &pass = scan.passes[p];
            const float before = pass.reach_;
            pass.take_rows(scan.super, b, rows[p]);
            if (pass.reach_ < before) scan.tables[p].limit = pass.query_.row_limit(pass.reach_);
        }
    }
};

void Pass::scan(const Super &super, std::uint64_t now, std::uint64_t live) {
    Scan scan{this, 1, super, &now, {query_.tables(reach_)}};
    n_scanned_ += static_cast<std::size_t>(std::popcount(now));
    const std::uint8_t *blocks = super.blocks(n_bytes_);
    if (!query_.sums8()) return scanner_->rows16(blocks, now, live, total_bytes_, *scan.tables, {Scan::take, &scan});
    std::uint64_t survivors[lane_count];
    for (std::uint64_t left = scanner_->rows8(blocks, now, live, total_bytes_, *scan.tables, survivors); left; left &= left - 1) {
        const auto b = static_cast<std::size_t>(std::countr_zero(left));
        take_rows(super, b, survivors[b]);
    }
}

void Pass::visit_together(std::vector<Pass> &passes, const std::vector<Super> &supers, std::size_t i,
                          AlignedBytes &prepared) {
    const Super &super = supers[i];
    const std::size_t n_passes = passes.size(), n_bytes = passes[0].n_bytes_, stride = n_bytes * lane_count;
    const bool sums16 = !passes[0].query_.sums8();
    std::vector<std::uint64_t> live(n_passes), own(n_passes);
    for (std::size_t p = 0; p < n_passes; ++p) live[p] = passes[p].begin_visit(supers, i);
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
            for (std::size_t j = 0; j < n; ++j) before[j] = passes[p + j].reach_;
            scan_together(&passes[p], n, super, &own[p], prepared.data(), ahead);
            ahead += passes[0].weighting_->lookups.n_steps() * lane_count;
            for (std::size_t j = 0; j < n; ++j) {
                live[p + j] &= ~now;
                if (passes[p + j].reach_ < before[j] && has_at_least(live[p + j], blocks_worth_bounds))
                    live[p + j] &= passes[p + j].blocks_within_reach(super);
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
    if (n_passes < queries_per_scan || 2 * total < 5 * static_cast<std::size_t>(std::popcount(any))) {
        for (std::size_t p = 0; p < n_passes; ++p)
            if (own[p]) passes[p].scan(super, own[p], own[p]);
        return;
    }
    Scan scan{passes, n_passes, super, own, {}};
    for (std::size_t p = 0; p < n_passes; ++p) {
        scan.tables[p] = passes[p].query_.tables(passes[p].reach_);
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

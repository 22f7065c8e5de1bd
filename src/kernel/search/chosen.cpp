#include "chosen.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "parallel.hpp"
#include "pass.hpp"

namespace bitrank {
namespace {

// Queries that share the blocks that several of them want, and the blocks that each reads before on its own, for a limit.
constexpr std::size_t queries_together = 1024, blocks_alone = 8;

// Fetch this many blocks ahead of the one that is read: they lie far apart.
constexpr std::size_t blocks_ahead = 2;

// Where a block lies.
struct Place {
    const Super *super;
    std::size_t block;  // within the super-block
    std::size_t bytes;  // of a block

    std::uint64_t bit() const { return std::uint64_t{1} << block; }
    bool has_wanted_rows() const { return super->wanted_rows(block) != 0; }
    void prefetch() const {
        const std::uint8_t *first = super->blocks(bytes) + block * bytes * lane_count;
        for (std::size_t byte = 0; byte < bytes; ++byte) __builtin_prefetch(first + byte * lane_count);
    }
};

class Places {
public:
    Places(const Search &task, const std::vector<Super> &supers) : supers_(supers), n_bytes_(task.order.n_bytes()) {
        std::size_t n_blocks = 0, n_supers = 0;
        for (const Segment &segment : task.segments) {
            starts_.push_back({n_blocks, n_supers});
            n_blocks += segment.n_blocks();
            n_supers += segment.n_supers();
        }
    }

    Place of(std::int64_t number) const {
        const auto block = static_cast<std::size_t>(number);
        std::size_t s = starts_.size() - 1;
        while (starts_[s].block > block) --s;
        const std::size_t inside = block - starts_[s].block;
        return {&supers_[starts_[s].super + inside / lane_count], inside % lane_count, n_bytes_};
    }

private:
    struct Start {
        std::size_t block, super;
    };
    const std::vector<Super> &supers_;
    std::size_t n_bytes_;
    std::vector<Start> starts_;
};

// Read the blocks of a query from the i-th on, up to the last; returns how many were read.
std::int64_t read(Pass &pass, const Chosen &chosen, std::size_t q, const Places &places, std::size_t first,
                  std::size_t last) {
    const std::int64_t *blocks = chosen.blocks + q * chosen.n_columns;
    const float *floors = chosen.floors + q * chosen.n_columns;
    std::int64_t n_read = 0;
    for (std::size_t i = first; i < last; ++i) {
        if (i + blocks_ahead < last) places.of(blocks[i + blocks_ahead]).prefetch();
        if (i >= chosen.n_sure && floors[i] > pass.limit()) continue;
        const Place place = places.of(blocks[i]);
        if (!place.has_wanted_rows()) continue;
        pass.visit_chosen(*place.super, place.bit());
        ++n_read;
    }
    return n_read;
}

}  // namespace

std::vector<std::vector<Hit>> search_chosen(const Search &given, const Chosen &chosen, std::int64_t *n_read) {
    const Search task = given.with_prepared_weights();
    const std::vector<Super> supers = supers_of(task);
    const Places places(task, supers);
    std::vector<std::vector<Hit>> out(task.n_queries);
    const std::size_t together =
        std::clamp(task.n_queries / std::max<std::size_t>(1, task.n_threads), std::size_t{1}, queries_together);
    parallel_for((task.n_queries + together - 1) / together, task.n_threads, [&](std::size_t group) {
        const std::size_t start = group * together, stop = std::min(task.n_queries, start + together);
        const std::size_t n_alone =
            stop - start < queries_per_scan ? chosen.n_columns : std::min(blocks_alone, chosen.n_columns);
        std::vector<Pass> passes;
        passes.reserve(stop - start);
        for (std::size_t q = start; q < stop; ++q) {
            passes.emplace_back(task, q, supers, false);
            n_read[q] = read(passes.back(), chosen, q, places, 0, n_alone);
            passes.back().finished_top();
        }
        AlignedBytes prepared(passes[0].prepared_size());
        // Those that are read in any case lower the limits that decide on the others.
        const std::size_t n_sure = std::clamp(chosen.n_sure, n_alone, chosen.n_columns);
        for (const auto &[first, last] : {std::pair{n_alone, n_sure}, std::pair{n_sure, chosen.n_columns}}) {
            std::map<const Super *, std::vector<std::uint64_t>> wanted;
            for (std::size_t q = start; q < stop; ++q)
                for (std::size_t i = first; i < last; ++i) {
                    if (i >= chosen.n_sure && chosen.floors[q * chosen.n_columns + i] > passes[q - start].limit()) continue;
                    const Place place = places.of(chosen.blocks[q * chosen.n_columns + i]);
                    if (!place.has_wanted_rows()) continue;
                    std::vector<std::uint64_t> &blocks = wanted[place.super];
                    blocks.resize(stop - start);
                    blocks[q - start] |= place.bit();
                    ++n_read[q];
                }
            for (auto &[super, blocks] : wanted) Pass::visit_chosen(passes, *super, blocks, prepared);
            for (Pass &pass : passes) pass.finished_top();
        }
        for (std::size_t q = start; q < stop; ++q) out[q] = passes[q - start].finished_top().take(task.sorted);
    });
    return out;
}

}  // namespace bitrank

#include "memory.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "parallel.hpp"

namespace bitrank {
namespace {

constexpr std::size_t at_once = 32;  // queries per piece of work
constexpr float first = 1.0f;        // puts what is pinned before everything else
constexpr double rounding = 1e-5;    // share of a distance that rounding may change

template <typename Work>
void for_queries(std::size_t n, std::size_t n_threads, Work work) {
    parallel_for((n + at_once - 1) / at_once, n_threads, [&](std::size_t piece) {
        for (std::size_t q = piece * at_once; q < std::min(n, (piece + 1) * at_once); ++q) work(q);
    });
}

struct Result {
    float distance;
    std::int64_t id, by;
    bool operator<(const Result &other) const {
        return std::tie(distance, id) < std::tie(other.distance, other.id);
    }
};

}  // namespace

std::vector<float> lift_limits(const Limiting &task) {
    std::vector<float> out(3 * task.n_queries);
    for (std::size_t q = 0; q < task.n_queries; ++q) {
        const auto similarity = [&](std::size_t place) {
            return (task.ranked.totals[q] - 2.0 * task.distances[q * task.k + place]) * task.ranked.units[q];
        };
        const double total = task.asked.totals[q], unit = task.asked.units[q];
        const double floor = similarity(task.k - 1) - task.tie * (similarity(0) - task.pivot);
        const double pinned_floor =
            task.any_pinned ? task.pinned_share * std::min(1.0, total * unit) : std::numeric_limits<double>::infinity();
        const double least = std::isfinite(task.offset) ? std::min(floor + task.offset, pinned_floor) : pinned_floor;
        const double limit = std::min((total - least / unit) / 2.0, total);
        out[q] = static_cast<float>(floor);
        out[task.n_queries + q] = static_cast<float>(pinned_floor);
        out[2 * task.n_queries + q] = static_cast<float>(std::max(limit, rounding * std::max(total, 1e-9)));
    }
    return out;
}

std::vector<std::vector<Named>> named(const Naming &task, const Lists &lists, std::size_t n_threads) {
    std::vector<std::vector<Named>> out(task.n_queries);
    for_queries(task.n_queries, n_threads, [&](std::size_t q) {
        auto &found = out[q];
        for (std::size_t j = q * task.n_judged; j < (q + 1) * task.n_judged; ++j) {
            const std::int64_t judged = task.judged[j];
            if (judged < 0) continue;
            const float whole = task.similarities[j], less = whole - task.offset;
            const bool near = whole >= task.pinned_floors[q];
            if (!near && !(less > task.floors[q])) continue;
            for (std::int64_t i = lists.starts[judged]; i < lists.starts[judged + 1]; ++i) {
                const float similarity = near && lists.pinned[i] ? whole + first : less;
                if (similarity > task.floors[q]) found.push_back({lists.items[i], similarity, judged});
            }
        }
        std::sort(found.begin(), found.end(), [](const Named &a, const Named &b) {
            return std::tie(a.item, b.similarity, a.judged) < std::tie(b.item, a.similarity, b.judged);
        });
        const auto same = [](const Named &a, const Named &b) { return a.item == b.item; };
        found.erase(std::unique(found.begin(), found.end(), same), found.end());
    });
    return out;
}

void lift(const Lifting &task, std::size_t n_threads) {
    for_queries(task.n_queries, n_threads, [&](std::size_t q) {
        const double total = task.scale.totals[q], unit = task.scale.units[q];
        std::vector<std::pair<double, std::size_t>> lifted;  // minus the score, and the place of the item
        for (std::size_t i = 0; i < task.width; ++i) {
            const std::size_t place = q * task.width + i;
            if (task.items[place] < 0 || !std::isfinite(task.item_distances[place])) continue;
            const double plain = (total - 2.0 * task.item_distances[place]) * unit;
            const double score = task.similarities[place] + task.tie * (plain - task.pivot);
            if (score > plain) lifted.emplace_back(-score, place);
        }
        const std::size_t n_lifted = std::min(task.most, lifted.size());
        std::partial_sort(lifted.begin(), lifted.begin() + static_cast<std::ptrdiff_t>(n_lifted), lifted.end());
        lifted.resize(n_lifted);
        std::vector<Result> results;
        for (const auto &[score, place] : lifted)
            results.push_back({static_cast<float>((total + score / unit) / 2.0), task.items[place], task.judged[place]});
        for (std::size_t i = q * task.k; i < (q + 1) * task.k; ++i) {
            const std::int64_t id = task.ids[i];
            const auto is_same = [&](const Result &result) { return result.id == id; };
            if (id >= 0 && std::none_of(results.begin(), results.begin() + static_cast<std::ptrdiff_t>(n_lifted), is_same))
                results.push_back({task.distances[i], id, -1});
        }
        std::sort(results.begin(), results.end());
        for (std::size_t i = 0; i < task.k; ++i) {
            const Result result = i < results.size() ? results[i] : Result{std::numeric_limits<float>::infinity(), -1, -1};
            task.ids[q * task.k + i] = result.id;
            task.distances[q * task.k + i] = std::max(0.0f, result.distance);
            task.by[q * task.k + i] = result.by;
        }
    });
}

}  // namespace bitrank

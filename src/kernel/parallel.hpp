// Split work among threads that live for one call.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace bitrank {

// Call work(i) for every i < n; each thread takes the next free i. Rethrow the first exception.
template <typename Work>
void parallel_for(std::size_t n, std::size_t n_threads, Work work) {
    std::atomic<std::size_t> next{0};
    std::exception_ptr error;
    std::mutex error_lock;
    const auto run = [&] {
        try {
            for (std::size_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < n;) work(i);
        } catch (...) {
            const std::lock_guard<std::mutex> guard(error_lock);
            if (!error) error = std::current_exception();
            next = n;
        }
    };
    std::vector<std::thread> threads;
    try {
        for (std::size_t t = 1; t < std::min(n_threads, n); ++t) threads.emplace_back(run);
    } catch (const std::system_error &) {
        // The system allows no more threads: continue with those that run.
    }
    run();
    for (auto &thread : threads) thread.join();
    if (error) std::rethrow_exception(error);
}

}  // namespace bitrank

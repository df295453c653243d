// Emberline for C++14 and newer: guards around the functions of emberline.h.
//
// Guards never throw. Without a running agent, and after an error, they do nothing.
#ifndef EMBERLINE_HPP
#define EMBERLINE_HPP

#include "emberline.h"

#include <cstdint>
#include <exception>
#include <string>
#include <utility>

namespace emberline {

namespace detail {

// The exceptions that unwind this thread.
inline int exceptions() noexcept {
#if defined(__cpp_lib_uncaught_exceptions)
  return std::uncaught_exceptions();
#else
  return std::uncaught_exception() ? 1 : 0;
#endif
}

// Whether an exception leaves the scope in which this was made.
class Unwinding {
 public:
  bool by_exception() const noexcept { return exceptions() > at_start_; }

 private:
  int at_start_ = exceptions();
};

// The number of something that ends once, with its owner.
class Handle {
 public:
  explicit Handle(std::uint64_t number) noexcept : number_(number) {}
  Handle(Handle &&other) noexcept : number_(other.take()) {}
  Handle(const Handle &) = delete;
  Handle &operator=(const Handle &) = delete;

  std::uint64_t number() const noexcept { return number_; }
  std::uint64_t take() noexcept { return std::exchange(number_, 0); }

 private:
  std::uint64_t number_;
};

}  // namespace detail

// The text of this thread's last error.
inline std::string last_error() { return emberline_last_error(); }

// The agent of this process, until the end of its scope.
class Agent {
 public:
  explicit Agent(const char *worker = nullptr, const char *collector = nullptr) noexcept
      : status_(emberline_start(worker, collector)) {}
  explicit Agent(const emberline_settings &settings) noexcept
      : status_(emberline_start_with(&settings)) {}
  Agent(const Agent &) = delete;
  Agent &operator=(const Agent &) = delete;
  ~Agent() {
    if (status_ == EMBERLINE_STATUS_OK) {
      emberline_stop();
    }
  }

  // Whether it runs; if not, last_error() has the reason right after the start.
  explicit operator bool() const noexcept { return status_ == EMBERLINE_STATUS_OK; }
  emberline_status status() const noexcept { return status_; }
  bool flush(double timeout_s) const noexcept {
    return emberline_flush(timeout_s) == EMBERLINE_STATUS_OK;
  }

 private:
  emberline_status status_;
};

// The time in which a thread works for a task. It stays on its thread.
class TaskScope {
 public:
  explicit TaskScope(std::uint64_t task) noexcept : task_(task) { emberline_task_enter(task_); }
  TaskScope(const TaskScope &) = delete;
  TaskScope &operator=(const TaskScope &) = delete;
  ~TaskScope() { emberline_task_leave(task_); }

 private:
  std::uint64_t task_;
};

// A reference to a running task, or to none, for the threads of a pool.
class TaskHandle {
 public:
  explicit TaskHandle(std::uint64_t task = 0) noexcept : task_(task) {}

  std::uint64_t number() const noexcept { return task_; }

  // Calls `work` for the task and returns its result.
  template <typename Work>
  auto run(Work &&work) const -> decltype(std::forward<Work>(work)()) {
    TaskScope scope(task_);
    return std::forward<Work>(work)();
  }

 private:
  std::uint64_t task_;
};

// The innermost task that this thread is in.
inline TaskHandle current_task() noexcept { return TaskHandle(emberline_current_task()); }

// A task until the end of its scope: `ok`, or `failed` if an exception leaves it.
class Task {
 public:
  explicit Task(const char *name, const char *key = nullptr) noexcept
      : task_(emberline_task_begin(name, key)) {}
  Task(const char *name, const std::string &key) noexcept : Task(name, key.c_str()) {}
  Task(const char *name, const emberline_task_options &options) noexcept
      : task_(emberline_task_begin_with(name, &options)) {}
  Task(Task &&) noexcept = default;
  ~Task() {
    if (unwinding_.by_exception()) {
      fail("an exception left the task");
    } else {
      emberline_task_end(task_.take());
    }
  }

  TaskHandle handle() const noexcept { return TaskHandle(task_.number()); }
  void result_bytes(std::uint64_t bytes) noexcept {
    emberline_task_result_bytes(task_.number(), bytes);
  }
  void result_type(const char *name) noexcept {
    emberline_task_result_type(task_.number(), name);
  }
  void fail(const char *cause) noexcept { emberline_task_fail(task_.take(), cause); }
  void cancel() noexcept { emberline_task_cancel(task_.take()); }

 private:
  detail::Handle task_;
  detail::Unwinding unwinding_;
};

// A phase of the current task until the end of its scope. It stays on its thread.
class Phase {
 public:
  explicit Phase(const char *name) noexcept : phase_(emberline_phase_begin(name)) {}
  Phase(const Phase &) = delete;
  Phase &operator=(const Phase &) = delete;
  ~Phase() { emberline_phase_end(phase_); }

 private:
  std::uint64_t phase_;
};

// A transfer until the end of its scope: `ok`, or `failed` if an exception leaves it.
class Transfer {
 public:
  Transfer(emberline_direction direction, const char *peer, const char *key = nullptr,
           const char *type_name = nullptr) noexcept
      : transfer_(emberline_transfer_begin(direction, peer, &key, key == nullptr ? 0 : 1,
                                           type_name)) {}
  Transfer(Transfer &&) noexcept = default;
  ~Transfer() {
    if (unwinding_.by_exception()) {
      fail("an exception left the transfer");
    } else {
      emberline_transfer_end(transfer_.take());
    }
  }

  void add_bytes(std::uint64_t bytes) noexcept {
    emberline_transfer_add_bytes(transfer_.number(), bytes);
  }
  void add_compressed_bytes(std::uint64_t bytes) noexcept {
    emberline_transfer_add_compressed_bytes(transfer_.number(), bytes);
  }
  void fail(const char *cause) noexcept { emberline_transfer_fail(transfer_.take(), cause); }
  void cancel() noexcept { emberline_transfer_cancel(transfer_.take()); }

 private:
  detail::Handle transfer_;
  detail::Unwinding unwinding_;
};

// A named period until the end of its scope.
class Run {
 public:
  explicit Run(const char *name) noexcept : run_(emberline_mark_run(name)) {}
  Run(Run &&) noexcept = default;
  ~Run() { emberline_run_end(run_.take()); }

 private:
  detail::Handle run_;
};

// Announces further tasks of a name.
inline void expect_tasks(const char *name, std::uint64_t tasks) noexcept {
  emberline_expect_tasks(name, tasks);
}

}  // namespace emberline

#endif  // EMBERLINE_HPP

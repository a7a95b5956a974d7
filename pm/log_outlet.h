// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <expected>
#include <memory>
#include <string>
#include <string_view>

#include "children/unique_fd.h"
#include "pm/log_line.h"

namespace cede::pm {

// Where the bytes of the log go. Nothing here waits for whoever takes them.
class LogOutlet {
  public:
    LogOutlet() = default;
    LogOutlet(const LogOutlet&) = delete;
    LogOutlet& operator=(const LogOutlet&) = delete;
    virtual ~LogOutlet() = default;

    [[nodiscard]] virtual LogStamp stamp() const noexcept = 0;

    // How many of the bytes were taken, or an errno: EAGAIN if there is no room now. Some may be taken only.
    [[nodiscard]] virtual std::expected<std::size_t, int> write(std::string_view bytes) noexcept = 0;

    // Whether what is written now can not be found any more where it should be.
    [[nodiscard]] virtual bool moved() const noexcept { return false; }

    // Opens the file anew, where there is one. On an error (an errno) everything is as before.
    [[nodiscard]] virtual std::expected<void, int> reopen() noexcept { return {}; }

    // The path of the file; empty: there is none.
    [[nodiscard]] virtual std::string path() const { return {}; }
};

// A descriptor that we were started with, and share with others: its flags are left alone (O_NONBLOCK would
// hit them, too). `journal_stream` is the variable JOURNAL_STREAM (systemd.exec(5)) or null.
class InheritedOutlet final : public LogOutlet {
  public:
    InheritedOutlet(int fd, const char* journal_stream) noexcept;

    [[nodiscard]] LogStamp stamp() const noexcept override { return stamp_; }
    [[nodiscard]] std::expected<std::size_t, int> write(std::string_view bytes) noexcept override;

  private:
    enum class Kind : unsigned char { plain, socket, waits };

    int fd_;
    Kind kind_ = Kind::plain;
    LogStamp stamp_ = LogStamp::time;
    children::UniqueFd own_;  // the same pipe or terminal, opened for ourselves; none if we may not
};

// A file, appended to. It is made with mode 0640 if it is not there.
class FileOutlet final : public LogOutlet {
  public:
    // The error says what is wrong with the path and the remedy.
    [[nodiscard]] static std::expected<std::unique_ptr<FileOutlet>, std::string> open(
        const std::string& path);

    [[nodiscard]] LogStamp stamp() const noexcept override { return LogStamp::time; }
    [[nodiscard]] std::expected<std::size_t, int> write(std::string_view bytes) noexcept override;
    [[nodiscard]] bool moved() const noexcept override;
    [[nodiscard]] std::expected<void, int> reopen() noexcept override;
    [[nodiscard]] std::string path() const override { return path_; }

  private:
    explicit FileOutlet(std::string path) : path_{std::move(path)} {}

    std::string path_;
    children::UniqueFd fd_;
};

// The system's log, by one datagram for each line; not by syslog(3), which waits for a daemon that is too
// slow. When the daemon was restarted it is found again.
class SyslogOutlet final : public LogOutlet {
  public:
    // `path` is /dev/log but in tests. The error says what is wrong and the remedy.
    [[nodiscard]] static std::expected<std::unique_ptr<SyslogOutlet>, std::string> open(
        const std::string& path);

    [[nodiscard]] LogStamp stamp() const noexcept override { return LogStamp::syslog; }
    [[nodiscard]] std::expected<std::size_t, int> write(std::string_view bytes) noexcept override;

  private:
    explicit SyslogOutlet(std::string path) : path_{std::move(path)} {}
    [[nodiscard]] int connect() noexcept;

    std::string path_;
    children::UniqueFd fd_;
};

// What can be known about the path of a log file without opening or making it: empty, or what is wrong with
// it and the remedy.
[[nodiscard]] std::string log_file_objection(const std::string& path);

}  // namespace cede::pm

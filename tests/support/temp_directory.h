// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <sys/stat.h>

namespace cede::tests {

// A fresh directory of mode 0755 that is gone, with all in it, when this object is.
class TempDirectory {
  public:
    TempDirectory() {
        std::string name = (std::filesystem::temp_directory_path() / "cede-test-XXXXXX").string();
        if (::mkdtemp(name.data()) == nullptr) {
            throw std::runtime_error{"mkdtemp " + name};
        }
        path_ = name;
        ::chmod(path_.c_str(), 0755);
    }
    TempDirectory(const TempDirectory&) = delete;
    TempDirectory& operator=(const TempDirectory&) = delete;
    ~TempDirectory() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }

    [[nodiscard]] std::string path() const { return path_.string(); }
    [[nodiscard]] std::string path(std::string_view name) const { return (path_ / name).string(); }

    // The path of a new file with this content.
    std::string write(std::string_view name, std::string_view content, mode_t mode = 0644) const {
        const std::string file = path(name);
        std::ofstream{file, std::ios::binary} << content;
        ::chmod(file.c_str(), mode);
        return file;
    }

  private:
    std::filesystem::path path_;
};

}  // namespace cede::tests

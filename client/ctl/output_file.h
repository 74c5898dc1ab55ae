// A file that is written as a whole or not at all: what stood under its name stays until all of the
// new one is there. What can be no other file under its name (/dev/stdout, a pipe, a link) is
// written where it is.
#ifndef CONCERT_CLIENT_CTL_OUTPUT_FILE_H_
#define CONCERT_CLIENT_CTL_OUTPUT_FILE_H_

#include <fstream>
#include <ostream>
#include <string>

namespace concert::ctl {

class OutputFile {
 public:
  explicit OutputFile(std::string name);
  // What was not closed is gone.
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  // Both return an empty string, or why it cannot be written.
  std::string Open();
  std::string Close();
  std::ostream& stream() { return file_; }
  const std::string& name() const { return name_; }

 private:
  std::string Failure() const;  // by errno

  const std::string name_;
  const std::string beside_;
  bool is_beside_ = false;
  std::ofstream file_;
};

}  // namespace concert::ctl

#endif  // CONCERT_CLIENT_CTL_OUTPUT_FILE_H_

#include <unistd.h>

#include <iostream>

#include "client/ctl/concertctl.h"
#include "proto/command/build.h"

int main(int argc, char** argv) {
  return concert::ctl::RunConcertctl(argc, argv, concert::command::VersionLine("concertctl"),
                                     std::cout, std::cerr, isatty(STDOUT_FILENO) == 1);
}

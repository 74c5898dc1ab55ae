#include <unistd.h>

#include <iostream>

#include "client/ctl/concertctl.h"

int main(int argc, char** argv) {
  return concert::ctl::RunConcertctl(argc, argv, std::cout, std::cerr, isatty(STDOUT_FILENO) == 1);
}

#include "proto/command/pages.h"

#include "proto/command/completion.h"

namespace concert::command {

void AddPages(CLI::App& app, const Manual& manual, const Pages& more) {
  Pages pages = more;
  pages["man"] = [&app, manual] { return ManualPage(app, manual); };
  pages["bash"] = [&app] { return BashCompletion(app); };
  pages["zsh"] = [&app] { return ZshCompletion(app); };
  pages["fish"] = [&app] { return FishCompletion(app); };
  const auto print = [pages](const std::string& name) {
    const auto page = pages.find(name);
    if (page == pages.end()) {
      std::string names;
      for (const auto& [known, unused] : pages) names += (names.empty() ? "" : ", ") + known;
      throw CLI::ValidationError("--page", "is '" + name + "'; it must be one of " + names);
    }
    std::string text = page->second();
    text.pop_back();  // printed with a line end of its own
    throw CLI::CallForVersion(text, 0);
  };
  app.add_option_function<std::string>("--page", print)->group("");
}

}  // namespace concert::command

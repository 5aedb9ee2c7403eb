#include "cli/version.h"

namespace tidemill {

const char* version_text() {
  return TIDEMILL_VERSION;
}

}  // namespace tidemill

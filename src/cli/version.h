// The program's version, from CMakeLists.txt.
#pragma once

namespace tidemill {

const char* version_text();

}  // namespace tidemill

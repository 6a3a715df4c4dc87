#include "support/crash/tale.h"

/* clang-format off */
#define OVERWRITE                                                             \
    .begin = { { TALE_SAVE, "a", "a1", 0 }, { TALE_MKDIR, "d", NULL, 0 },     \
               { TALE_SAVE, "d/b", "b1", 0 } },                               \
    .act = { { TALE_SAVE, "a", "a2", 0 },   { TALE_FLUSH, NULL, NULL, 0 },    \
             { TALE_SAVE, "a", "a3", 0 },   { TALE_SAVE, "d/b", "b2", 0 },    \
             { TALE_FLUSH, NULL, NULL, 0 } }
#define REMOVE                                                                \
    .begin = { { TALE_MKDIR, "d", NULL, 0 },  { TALE_SAVE, "d/x", "x1", 0 },  \
               { TALE_SAVE, "d/y", "y1", 0 }, { TALE_SAVE, "b", "b1", 0 } },  \
    .act = { { TALE_REMOVE, "d/x", NULL, 0 }, { TALE_SAVE, "t", "b2", 0 },    \
             { TALE_MOVE, "t", "b", 0 },      { TALE_FLUSH, NULL, NULL, 0 },  \
             { TALE_REMOVE, "d/y", NULL, 0 }, { TALE_SAVE, "d/y", "y2", 0 },  \
             { TALE_FLUSH, NULL, NULL, 0 } }
#define FOLDER                                                                \
    .begin = { { TALE_MKDIR, "d", NULL, 0 },   { TALE_MKDIR, "d/s", NULL, 0 }, \
               { TALE_SAVE, "d/1", "d1", 0 },  { TALE_SAVE, "d/2", "d2", 0 }, \
               { TALE_SAVE, "d/s/3", "d3", 0 } },                             \
    .act = { { TALE_MOVE, "d", "e", 0 },       { TALE_SAVE, "e/2", "d4", 0 }, \
             { TALE_FLUSH, NULL, NULL, 0 },    { TALE_MOVE, "e/s", "s", 0 },  \
             { TALE_MOVE, "e", "d", 0 },       { TALE_FLUSH, NULL, NULL, 0 } }
#define RESTORE                                                               \
    .begin = { { TALE_MKDIR, "d", NULL, 0 },      { TALE_SAVE, "d/same", "s1", 0 }, \
               { TALE_SAVE, "d/f", "f1", 0 },     { TALE_SAVE, "d/gone", "g1", 0 }, \
               { TALE_SAVE, "x", "x1", 0 },       { TALE_FLUSH, NULL, NULL, 0 }, \
               { TALE_MOMENT, NULL, NULL, 0 },    { TALE_SAVE, "d/f", "f2", 0 }, \
               { TALE_REMOVE, "d/gone", NULL, 0 }, { TALE_SAVE, "d/new", "n1", 0 }, \
               { TALE_SAVE, "x", "x2", 0 },       { TALE_FLUSH, NULL, NULL, 0 } }, \
    .act = { { TALE_BACK, "x", "x1", 0 },         { TALE_FLUSH, NULL, NULL, 0 }, \
             { TALE_BACK_TO, "d", NULL, 0 },      { TALE_FLUSH, NULL, NULL, 0 } }
#define UNDO                                                                  \
    .begin = { { TALE_MKDIR, "d", NULL, 0 },      { TALE_MKDIR, "old", NULL, 0 }, \
               { TALE_MKDIR, "mine", NULL, 0 },   { TALE_SAVE, "d/gone", "g1", 0 }, \
               { TALE_SAVE, "d/w", "w1", 0 },     { TALE_SAVE, "mine/t", "t1", 0 }, \
               { TALE_SAVE, "old/f", "f1", 0 },   { TALE_FLUSH, NULL, NULL, 0 }, \
               { TALE_MOMENT, NULL, NULL, 0 },    { TALE_RUN, NULL, "agent", 0 }, \
               { TALE_REMOVE, "d/gone", NULL, 0 }, { TALE_SAVE, "d/w", "w2", 0 }, \
               { TALE_SAVE, "mine/t", "t2", 0 },  { TALE_SAVE, "d/made", "m1", 0 }, \
               { TALE_MOVE, "old", "new", 0 },    { TALE_RUN, NULL, "", 0 },  \
               { TALE_SAVE, "mine/t", "t3", 0 },  { TALE_FLUSH, NULL, NULL, 0 }, \
               { TALE_MOMENT, NULL, NULL, 1 } },                              \
    .act = { { TALE_RUN, NULL, "u1", 0 },         { TALE_UNDO, "agent", "mine", 0 }, \
             { TALE_FLUSH, NULL, NULL, 0 },       { TALE_RUN, NULL, "u2", 0 }, \
             { TALE_UNDO, "u1", "mine", 1 },      { TALE_FLUSH, NULL, NULL, 0 } }

const struct tale tales[] = {
    { .name = "overwrite", OVERWRITE },
    { .name = "overwrite, weak store", .weak = true, OVERWRITE },
    { .name = "remove and replace", REMOVE },
    { .name = "remove and replace, weak store", .weak = true, REMOVE },
    { .name = "replaced before the upload",
      .begin = { { TALE_PUT, "f", "f0", 0 } },
      .act = { { TALE_PUT, "f", "f1", 0 },   { TALE_PUT, "f", "f2", 0 }, { TALE_PUT, "g", "g1", 0 },
               { TALE_REMOVE, "g", NULL, 0 }, { TALE_FLUSH, NULL, NULL, 0 } } },
    { .name = "move and change a file",
      .begin = { { TALE_MKDIR, "d", NULL, 0 }, { TALE_MKDIR, "e", NULL, 0 }, { TALE_SAVE, "d/a", "a1", 0 },
                 { TALE_SAVE, "d/b", "b1", 0 } },
      .act = { { TALE_MOVE, "d/a", "e/a", 0 }, { TALE_SAVE, "e/a", "a2", 0 }, { TALE_FLUSH, NULL, NULL, 0 },
               { TALE_MOVE, "e/a", "d/b", 0 }, { TALE_FLUSH, NULL, NULL, 0 } } },
    { .name = "swap two files",
      .begin = { { TALE_SAVE, "a", "a1", 0 }, { TALE_SAVE, "b", "b1", 0 } },
      .act = { { TALE_MOVE, "a", "t", 0 }, { TALE_MOVE, "b", "a", 0 }, { TALE_MOVE, "t", "b", 0 },
               { TALE_FLUSH, NULL, NULL, 0 } } },
    { .name = "move a folder", FOLDER },
    { .name = "move a folder, weak store", .weak = true, FOLDER },
    { .name = "prune",
      .begin = { { TALE_SAVE, "f", "f1", 0 }, { TALE_SAVE, "g", "g1", 0 }, { TALE_FLUSH, NULL, NULL, 0 },
                 { TALE_SAVE, "f", "f2", 0 }, { TALE_SNAPSHOT, NULL, "s", 0 }, { TALE_SAVE, "f", "f3", 0 },
                 { TALE_REMOVE, "g", NULL, 0 }, { TALE_FLUSH, NULL, NULL, 0 }, { TALE_SAVE, "f", "f4", 0 },
                 { TALE_FLUSH, NULL, NULL, 0 } },
      .act = { { TALE_PRUNE, NULL, "f1 f3", 0 }, { TALE_FLUSH, NULL, NULL, 0 }, { TALE_UNSNAPSHOT, NULL, "s", 0 },
               { TALE_PRUNE, NULL, "f2 g1", 0 }, { TALE_FLUSH, NULL, NULL, 0 } } },
    { .name = "restore", RESTORE },
    { .name = "restore, weak store", .weak = true, RESTORE },
    { .name = "undo", UNDO },
    { .name = "undo, weak store", .weak = true, UNDO },
    { .name = "snapshots",
      .begin = { { TALE_MKDIR, "d", NULL, 0 }, { TALE_SAVE, "d/f", "f1", 0 } },
      .act = { { TALE_SNAPSHOT, NULL, "s", 0 }, { TALE_SAVE, "d/f", "f2", 0 }, { TALE_SNAPSHOT, NULL, "t", 1 },
               { TALE_REMOVE, "d/f", NULL, 0 }, { TALE_FLUSH, NULL, NULL, 0 }, { TALE_UNSNAPSHOT, NULL, "s", 0 },
               { TALE_FLUSH, NULL, NULL, 0 } } },
};
/* clang-format on */
const unsigned tale_count = sizeof(tales) / sizeof(tales[0]);

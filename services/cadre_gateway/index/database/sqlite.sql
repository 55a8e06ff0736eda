CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE place (
    reader TEXT PRIMARY KEY, stream TEXT NOT NULL, position INTEGER NOT NULL, saved_at REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE removals (
    kind TEXT NOT NULL, name TEXT NOT NULL, seq INTEGER NOT NULL, due REAL NOT NULL, body BLOB NOT NULL,
    PRIMARY KEY (kind, name)) WITHOUT ROWID;

CREATE TABLE trees (
    tree TEXT PRIMARY KEY, seq INTEGER NOT NULL, floor INTEGER NOT NULL,
    ended_at REAL, unstarted_at REAL, erased_at REAL) WITHOUT ROWID;
CREATE INDEX trees_ended ON trees (ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX trees_unstarted ON trees (unstarted_at) WHERE unstarted_at IS NOT NULL;
CREATE INDEX trees_floor ON trees (erased_at) WHERE floor > 0;

CREATE TABLE blobs (
    tree TEXT NOT NULL, blob TEXT NOT NULL, seq INTEGER NOT NULL, PRIMARY KEY (tree, blob)) WITHOUT ROWID;
CREATE INDEX blobs_blob ON blobs (blob);

CREATE TABLE runs (
    id TEXT PRIMARY KEY, tree TEXT NOT NULL, seq INTEGER NOT NULL, parent TEXT, root INTEGER NOT NULL,
    agent TEXT NOT NULL, state TEXT NOT NULL, waiting_for TEXT, approvals INTEGER NOT NULL, asked_at REAL NOT NULL,
    started_at REAL NOT NULL, ended_at REAL, session TEXT, person TEXT, error TEXT, cost REAL NOT NULL,
    revision TEXT NOT NULL, summary BLOB NOT NULL);
CREATE INDEX runs_tree ON runs (tree);
CREATE INDEX runs_asked ON runs (asked_at, id) WHERE root = 1;
CREATE INDEX runs_agent ON runs (agent, asked_at, id) WHERE root = 1;
CREATE INDEX runs_state ON runs (state, asked_at, id) WHERE root = 1;
CREATE INDEX runs_session ON runs (session, asked_at, id) WHERE root = 1 AND session IS NOT NULL;
CREATE INDEX runs_person ON runs (person, asked_at, id) WHERE root = 1 AND person IS NOT NULL;
CREATE INDEX runs_parent ON runs (parent, asked_at, id) WHERE parent IS NOT NULL;
CREATE INDEX runs_open ON runs (agent, state, waiting_for) WHERE ended_at IS NULL;
CREATE INDEX runs_succeeded ON runs (agent, ended_at) WHERE state = 'success';
CREATE VIRTUAL TABLE run_texts USING fts5 (task, answer);

CREATE TABLE labels (
    run TEXT NOT NULL, name TEXT NOT NULL, tree TEXT NOT NULL, seq INTEGER NOT NULL, value TEXT NOT NULL,
    PRIMARY KEY (run, name)) WITHOUT ROWID;
CREATE INDEX labels_tree ON labels (tree);
CREATE INDEX labels_name ON labels (name, value, run);

CREATE TABLE calls (
    call TEXT NOT NULL, asked_at REAL NOT NULL, tree TEXT NOT NULL, seq INTEGER NOT NULL, state INTEGER NOT NULL,
    run TEXT NOT NULL, agent TEXT NOT NULL, name TEXT NOT NULL, verdict TEXT NOT NULL, at REAL NOT NULL,
    body BLOB NOT NULL, PRIMARY KEY (call, asked_at));
CREATE INDEX calls_tree ON calls (tree);
CREATE INDEX calls_at ON calls (state, at, call);
CREATE INDEX calls_alike ON calls (state, agent, name, verdict);

-- Ids are ordered by their bytes, whatever language the database sorts by.
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE place (
    reader TEXT PRIMARY KEY, stream TEXT NOT NULL, position BIGINT NOT NULL, saved_at DOUBLE PRECISION NOT NULL);
CREATE TABLE removals (
    kind TEXT NOT NULL, name TEXT NOT NULL, seq BIGINT NOT NULL, due DOUBLE PRECISION NOT NULL, body BYTEA NOT NULL,
    PRIMARY KEY (kind, name));

CREATE TABLE trees (
    tree TEXT COLLATE "C" PRIMARY KEY, seq BIGINT NOT NULL, floor BIGINT NOT NULL,
    ended_at DOUBLE PRECISION, unstarted_at DOUBLE PRECISION, erased_at DOUBLE PRECISION);
CREATE INDEX trees_ended ON trees (ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX trees_unstarted ON trees (unstarted_at) WHERE unstarted_at IS NOT NULL;
CREATE INDEX trees_floor ON trees (erased_at) WHERE floor > 0;

CREATE TABLE blobs (
    tree TEXT COLLATE "C" NOT NULL, blob TEXT COLLATE "C" NOT NULL, seq BIGINT NOT NULL, PRIMARY KEY (tree, blob));
CREATE INDEX blobs_blob ON blobs (blob);

CREATE TABLE runs (
    rowid BIGINT GENERATED ALWAYS AS IDENTITY, id TEXT COLLATE "C" PRIMARY KEY, tree TEXT COLLATE "C" NOT NULL,
    seq BIGINT NOT NULL, parent TEXT COLLATE "C", root BIGINT NOT NULL, agent TEXT COLLATE "C" NOT NULL,
    state TEXT COLLATE "C" NOT NULL, waiting_for TEXT COLLATE "C", approvals BIGINT NOT NULL,
    asked_at DOUBLE PRECISION NOT NULL, started_at DOUBLE PRECISION NOT NULL, ended_at DOUBLE PRECISION,
    session TEXT COLLATE "C", person TEXT COLLATE "C", error TEXT COLLATE "C", cost DOUBLE PRECISION NOT NULL,
    revision TEXT COLLATE "C" NOT NULL, summary BYTEA NOT NULL);
CREATE INDEX runs_tree ON runs (tree);
CREATE INDEX runs_asked ON runs (asked_at, id) WHERE root = 1;
CREATE INDEX runs_agent ON runs (agent, asked_at, id) WHERE root = 1;
CREATE INDEX runs_state ON runs (state, asked_at, id) WHERE root = 1;
CREATE INDEX runs_session ON runs (session, asked_at, id) WHERE root = 1 AND session IS NOT NULL;
CREATE INDEX runs_person ON runs (person, asked_at, id) WHERE root = 1 AND person IS NOT NULL;
CREATE INDEX runs_parent ON runs (parent, asked_at, id) WHERE parent IS NOT NULL;
CREATE INDEX runs_open ON runs (agent, state, waiting_for) WHERE ended_at IS NULL;
CREATE INDEX runs_succeeded ON runs (agent, ended_at) WHERE state = 'success';
CREATE TABLE run_texts (rowid BIGINT PRIMARY KEY, task TSVECTOR NOT NULL, answer TSVECTOR NOT NULL);
CREATE INDEX run_texts_words ON run_texts USING gin ((task || answer));

CREATE TABLE labels (
    run TEXT COLLATE "C" NOT NULL, name TEXT COLLATE "C" NOT NULL, tree TEXT COLLATE "C" NOT NULL, seq BIGINT NOT NULL,
    value TEXT COLLATE "C" NOT NULL, PRIMARY KEY (run, name));
CREATE INDEX labels_tree ON labels (tree);
CREATE INDEX labels_name ON labels (name, value, run);

CREATE TABLE calls (
    call TEXT COLLATE "C" NOT NULL, asked_at DOUBLE PRECISION NOT NULL, tree TEXT COLLATE "C" NOT NULL,
    seq BIGINT NOT NULL, state BIGINT NOT NULL, run TEXT COLLATE "C" NOT NULL, agent TEXT COLLATE "C" NOT NULL,
    name TEXT COLLATE "C" NOT NULL, verdict TEXT NOT NULL, at DOUBLE PRECISION NOT NULL, body BYTEA NOT NULL,
    PRIMARY KEY (call, asked_at));
CREATE INDEX calls_tree ON calls (tree);
CREATE INDEX calls_at ON calls (state, at, call);
CREATE INDEX calls_alike ON calls (state, agent, name, verdict);

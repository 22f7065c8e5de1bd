BEGIN TRANSACTION;
CREATE TABLE activations (
	profile VARCHAR(64) NOT NULL, 
	number INTEGER NOT NULL, 
	version INTEGER NOT NULL, 
	reason VARCHAR(20) NOT NULL, 
	n_clicks BIGINT NOT NULL, 
	time DOUBLE NOT NULL, 
	PRIMARY KEY (profile, number), 
	FOREIGN KEY(profile) REFERENCES profiles (name)
);
INSERT INTO "activations" VALUES('hamming',1,1,'start',0,1.79479519260074472431e+09);
INSERT INTO "activations" VALUES('default',1,1,'start',0,1.79479519262907218938e+09);
INSERT INTO "activations" VALUES('shop',1,1,'start',0,1.79479519292463469502e+09);
INSERT INTO "activations" VALUES('shop',2,2,'gate',2,1.79479519498552250863e+09);
INSERT INTO "activations" VALUES('shop',3,3,'user',2,1794795195.04872);
INSERT INTO "activations" VALUES('shop',4,2,'rollback',2,1.79479519508463287351e+09);
CREATE TABLE changes (
	name VARCHAR(40) NOT NULL, 
	value BIGINT NOT NULL, 
	PRIMARY KEY (name)
);
INSERT INTO "changes" VALUES('items',1);
INSERT INTO "changes" VALUES('versions',6);
CREATE TABLE clicks (
	"key" VARCHAR(200) NOT NULL, 
	profile VARCHAR(64) NOT NULL, 
	number BIGINT NOT NULL, 
	time DOUBLE NOT NULL, 
	version INTEGER, 
	query_item BIGINT, 
	query_code BLOB NOT NULL, 
	magnitudes BLOB, 
	shown TEXT NOT NULL, 
	shown_codes BLOB NOT NULL, 
	PRIMARY KEY ("key"), 
	UNIQUE (profile, number), 
	FOREIGN KEY(profile) REFERENCES profiles (name)
);
INSERT INTO "clicks" VALUES('page-0','default',1,1.79479519302191615104e+09,1,10,X'E810',NULL,'[{"id": 32, "explored": true, "clicked": false}, {"id": 4, "explored": false, "clicked": false}, {"id": 25, "explored": false, "clicked": false}, {"id": 31, "explored": false, "clicked": true}, {"id": 21, "explored": true, "clicked": false}, {"id": 35, "explored": false, "clicked": false}]',X'0630ECC0E8E0CF10B50068A0');
INSERT INTO "clicks" VALUES('page-1','default',2,1.794795193202231884e+09,1,NULL,X'ABC0',NULL,'[{"id": 100, "explored": false, "clicked": true}, {"id": 27, "explored": false, "clicked": false}, {"id": 1, "explored": false, "clicked": true}, {"id": 4, "explored": false, "clicked": false}, {"id": 25, "explored": true, "clicked": false}, {"id": 23, "explored": true, "clicked": true}]',X'ABC0AAA003D0ECC0E8E01840');
INSERT INTO "clicks" VALUES('page-2','default',3,1.79479519322599673268e+09,1,NULL,X'C4F0',X'355D343F299DDB3B1ED8263FCCC83F3F62FDA13E3C74AF3DE163663FC8AD373F33FB383C402A373FF1B71D3F907E9D3E','[{"id": 9, "explored": true, "clicked": true}, {"id": 2, "explored": false, "clicked": true}, {"id": 19, "explored": true, "clicked": true}, {"id": 13, "explored": false, "clicked": false}, {"id": 25, "explored": false, "clicked": false}, {"id": 36, "explored": false, "clicked": false}]',X'5EF0C4F00C0088E0E8E0D6F0');
INSERT INTO "clicks" VALUES('page-3','default',4,1.79479519327423715597e+09,1,13,X'88E0',NULL,'[{"id": 5, "explored": true, "clicked": false}, {"id": 25, "explored": false, "clicked": false}, {"id": 27, "explored": false, "clicked": false}, {"id": 37, "explored": false, "clicked": false}, {"id": 2, "explored": false, "clicked": true}, {"id": 20, "explored": true, "clicked": false}]',X'2BB0E8E0AAA0DAE0C4F0AD20');
INSERT INTO "clicks" VALUES('page-4','default',5,1.79479519332529187207e+09,1,NULL,X'ABC0',NULL,'[{"id": 100, "explored": false, "clicked": true}, {"id": 27, "explored": false, "clicked": false}, {"id": 1, "explored": false, "clicked": false}, {"id": 18, "explored": true, "clicked": true}, {"id": 15, "explored": true, "clicked": true}, {"id": 4, "explored": false, "clicked": false}]',X'ABC0AAA003D019602580ECC0');
INSERT INTO "clicks" VALUES('page-5','default',6,1.79479519339039516453e+09,1,NULL,X'2BB0',X'D6A6223F0DE9A03F8862EA3F378DA53E5DCCF03EFB43C93E78B8D83FEEE14F3F4BCA4D3FF5D80140A02BE83EA2CB223F','[{"id": 5, "explored": false, "clicked": true}, {"id": 9, "explored": true, "clicked": true}, {"id": 3, "explored": false, "clicked": true}, {"id": 13, "explored": true, "clicked": false}, {"id": 27, "explored": false, "clicked": false}, {"id": 6, "explored": false, "clicked": true}]',X'2BB05EF037B088E0AAA0A7A0');
INSERT INTO "clicks" VALUES('page-6','default',7,1.79479519341976284977e+09,1,16,X'9110',NULL,'[{"id": 26, "explored": false, "clicked": false}, {"id": 17, "explored": true, "clicked": true}, {"id": 21, "explored": false, "clicked": false}, {"id": 33, "explored": false, "clicked": false}, {"id": 22, "explored": true, "clicked": false}, {"id": 12, "explored": false, "clicked": true}]',X'B190A770B500B55043009420');
INSERT INTO "clicks" VALUES('page-7','default',8,1.79479519344945478431e+09,1,NULL,X'ABC0',NULL,'[{"id": 15, "explored": true, "clicked": true}, {"id": 100, "explored": false, "clicked": true}, {"id": 27, "explored": false, "clicked": true}, {"id": 26, "explored": true, "clicked": false}, {"id": 1, "explored": false, "clicked": true}, {"id": 4, "explored": false, "clicked": false}]',X'2580ABC0AAA0B19003D0ECC0');
INSERT INTO "clicks" VALUES('page-8','default',9,1.79479519348784327505e+09,1,NULL,X'0C90',X'104B1B3D2E3F2C3F29EE9F3F514E9D3FA7DE243FA7ED5A3F06CC5F3D6A95CA3F4B93853F41898D3F2D8F9F3E9AC0123F','[{"id": 4, "explored": true, "clicked": false}, {"id": 8, "explored": false, "clicked": true}, {"id": 19, "explored": false, "clicked": false}, {"id": 32, "explored": false, "clicked": false}, {"id": 27, "explored": true, "clicked": false}, {"id": 2, "explored": false, "clicked": true}]',X'ECC00C900C000630AAA0C4F0');
INSERT INTO "clicks" VALUES('page-9','default',10,1.79479519355543279653e+09,1,19,X'0C00',NULL,'[{"id": 36, "explored": true, "clicked": true}, {"id": 8, "explored": false, "clicked": false}, {"id": 23, "explored": false, "clicked": false}, {"id": 12, "explored": false, "clicked": false}, {"id": 38, "explored": true, "clicked": true}, {"id": 15, "explored": false, "clicked": true}]',X'D6F00C901840942071C02580');
INSERT INTO "clicks" VALUES('page-10','shop',1,1.79479519366102814679e+09,1,NULL,X'ABC0',NULL,'[{"id": 100, "explored": false, "clicked": true}, {"id": 11, "explored": true, "clicked": true}, {"id": 27, "explored": false, "clicked": false}, {"id": 25, "explored": true, "clicked": true}, {"id": 1, "explored": false, "clicked": false}, {"id": 4, "explored": false, "clicked": true}]',X'ABC0FDF0AAA0E8E003D0ECC0');
INSERT INTO "clicks" VALUES('page-11','shop',2,1.79479519373429846759e+09,1,NULL,X'FDF0',X'3E95233E4E199E3F836F9F3DB4719B3FD494C53F8A00823F875C1040C469383F3B98023FAC31193FCDCC453FE683AB3E','[{"id": 11, "explored": false, "clicked": false}, {"id": 24, "explored": false, "clicked": false}, {"id": 4, "explored": false, "clicked": false}, {"id": 9, "explored": false, "clicked": false}, {"id": 25, "explored": true, "clicked": true}, {"id": 6, "explored": true, "clicked": true}]',X'FDF04D50ECC05EF0E8E0A7A0');
CREATE TABLE facts (
	name VARCHAR(40) NOT NULL, 
	value BIGINT NOT NULL, 
	PRIMARY KEY (name)
);
INSERT INTO "facts" VALUES('format',1);
INSERT INTO "facts" VALUES('n_bits',12);
CREATE TABLE items (
	id BIGINT NOT NULL, 
	removed BOOLEAN NOT NULL, 
	code BLOB NOT NULL, 
	title TEXT, 
	image TEXT, 
	payload TEXT NOT NULL, 
	changed BIGINT NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "items" VALUES(100,0,X'ABC0','hundred',NULL,'{"price": 3}',1);
INSERT INTO "items" VALUES(7,1,X'',NULL,NULL,'{}',1);
CREATE TABLE profiles (
	name VARCHAR(64) NOT NULL, 
	n_clicks BIGINT NOT NULL, 
	created DOUBLE NOT NULL, 
	PRIMARY KEY (name)
);
INSERT INTO "profiles" VALUES('hamming',0,1.79479519258450651172e+09);
INSERT INTO "profiles" VALUES('default',10,1.79479519262768626207e+09);
INSERT INTO "profiles" VALUES('shop',2,1.79479519292325258254e+09);
CREATE TABLE quality (
	profile VARCHAR(64) NOT NULL, 
	n_clicks BIGINT NOT NULL, 
	time DOUBLE NOT NULL, 
	figures TEXT NOT NULL, 
	PRIMARY KEY (profile, n_clicks), 
	FOREIGN KEY(profile) REFERENCES profiles (name)
);
INSERT INTO "quality" VALUES('shop',2,1.79479519498325586321e+09,'{"active": 0.6, "candidate": 0.7, "hamming": 0.5, "decision": "activate", "reason": "the candidate ranks explored clicks at least as well", "n_held_out": 30, "alarm": false}');
CREATE TABLE versions (
	profile VARCHAR(64) NOT NULL, 
	number INTEGER NOT NULL, 
	time DOUBLE NOT NULL, 
	weights BLOB NOT NULL, 
	made_from INTEGER, 
	origin VARCHAR(20) NOT NULL, 
	n_clicks BIGINT NOT NULL, 
	figures TEXT NOT NULL, 
	PRIMARY KEY (profile, number), 
	FOREIGN KEY(profile) REFERENCES profiles (name)
);
INSERT INTO "versions" VALUES('hamming',1,1.79479519258450651172e+09,X'0000803F0000803F0000803F0000803F0000803F0000803F0000803F0000803F0000803F0000803F0000803F0000803F',NULL,'uniform',0,'{}');
INSERT INTO "versions" VALUES('default',1,1.79479519262768626207e+09,X'0000803F0000803F0000803F0000803F0000803F0000803F0000803F0000803F0000803F0000803F0000803F0000803F',NULL,'uniform',0,'{}');
INSERT INTO "versions" VALUES('shop',1,1.79479519292325258254e+09,X'000000008C2E3A3E8C2EBA3EE9A20B3F8C2E3A3F2FBA683FE9A28B3FBAE8A23F8C2EBA3F5D74D13F2FBAE83F00000040',NULL,'given',0,'{}');
INSERT INTO "versions" VALUES('shop',2,1.79479519498471808431e+09,X'0000803FE9A28B3FD145973FBAE8A23FA38BAE3F8C2EBA3F74D1C53F5D74D13F4617DD3F2FBAE83F175DF43F00000040',1,'clicks',2,'{"active": 0.6, "candidate": 0.7, "hamming": 0.5, "decision": "activate", "reason": "the candidate ranks explored clicks at least as well", "n_held_out": 30, "alarm": false}');
INSERT INTO "versions" VALUES('shop',3,1.79479519503192043311e+09,X'0000803F0000803F0000803F0000803F0000803F0000803F0000803F0000803F0000803F0000803F0000803F0000803F',NULL,'given',2,'{}');
CREATE INDEX ix_items_changed ON items (changed);
COMMIT;
